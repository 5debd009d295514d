"""The values of tokens: what is put is read back, and what was left out of the pass is not known, never 0."""

import base64
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from numpy.testing import assert_allclose
from pyarrow import BufferReader
from worker_models import items, tiny_policy

from backend.contract.groups import RewardScore
from backend.contract.grpo import GrpoConfig
from backend.contract.training import Telemetry
from worker.credit import Credit, assign_credit
from worker.group_records import group_reports
from worker.groups import Scored
from worker.learner import Update
from worker.rewards.scoring import Scores
from worker.rollout.engine import Completion, Rollout
from worker.step_report import step_metrics
from worker.token_record import TokenRecord
from worker.traces import TokenTexts, trace_file, traced_rows

LENGTHS = (3, 1, 2, 2)
MASK = torch.arange(3)[None, :] < torch.tensor(LENGTHS)[:, None]


def test_values_stand_where_there_are_tokens_however_wide_they_come() -> None:
    tokens = TokenRecord(MASK)
    tokens.put("logprob", [2, 3], torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tokens.put("logprob", [0, 1], torch.tensor([[5.0, 6.0, 7.0], [8.0, 9.0, 9.0]]))
    tokens.put("clipped", [0, 1, 2, 3], torch.ones(4, 3, dtype=torch.bool))
    assert_allclose(tokens["logprob"], [[5, 6, 7], [8, math.nan, math.nan], [1, 2, math.nan], [3, 4, math.nan]])
    assert tokens["clipped"].tolist() == MASK.tolist()
    assert_allclose(tokens.sums("logprob"), [18, 8, 3, 7])
    assert_allclose(tokens.means("logprob"), [6, 8, 1.5, 3.5])
    assert_allclose(tokens.means("clipped"), 1)
    assert tokens.mean("logprob") == 36 / 8
    assert tokens.flat("logprob", [3, 1]).tolist() == [3, 4, 8]


def test_what_was_not_put_is_not_known() -> None:
    tokens = TokenRecord(MASK)
    tokens.put("clipped", [0, 1], torch.tensor([[True, False, False], [False, False, False]]))
    assert tokens.known("clipped").tolist() == [True, True, False, False]
    assert_allclose(tokens.means("clipped"), [1 / 3, 0, math.nan, math.nan])
    assert tokens.mean("clipped") == 0.25
    assert tokens.get("kl") is None
    assert not tokens.known("kl").any()
    assert np.isnan(tokens.sums("kl")).all()
    assert math.isnan(tokens.mean("kl"))


def dead_group(known: list[int]) -> tuple[Scored, Credit, TokenRecord]:
    """Two groups of two; the second has equal rewards. Only the rows `known` went through the pass."""
    completions = [Completion([5] * length, [-1.0] * length, "stop", "x") for length in LENGTHS]
    rewards = [1.0, 0.0, 1.0, 1.0]
    scores = Scores([[RewardScore(name="r", raw=reward, weight=1.0)] for reward in rewards], np.array(rewards))
    scored = Scored(Rollout(items(2), ["a", "b"], [[7], [8]], 2, completions), scores)
    tokens = TokenRecord(MASK)
    for name in ("old_logprob", "logprob", "entropy", "ratio", "kl", "advantage") if known else ():
        tokens.put(name, known, torch.full((len(known), 3), -0.5))
    if known:
        tokens.put("clipped", known, torch.zeros(len(known), 3, dtype=torch.bool))
    config = GrpoConfig.model_validate({"sampling": {"group_size": 2, "prompts_per_step": 2}})
    return scored, assign_credit(config, scores, tokens), tokens


MEASURED = ("logprob_sum", "kl_mean", "entropy_mean", "ratio_mean", "clipped_share")


@pytest.mark.parametrize("known", [[0, 1], [0, 1, 2, 3], []], ids=["a group left out", "all", "none"])
def test_a_completion_that_was_left_out_of_the_pass_has_no_numbers_of_it(known: list[int]) -> None:
    scored, credit, tokens = dead_group(known)
    groups = group_reports(scored.rollout, scored.scores, credit, tokens, beta=0.0)
    for row, completion in enumerate(completion for group in groups for completion in group.completions):
        assert all((getattr(completion, name) is not None) == (row in known) for name in MEASURED)
        assert completion.reward is not None
        assert completion.advantage is not None  # that of a dead group is 0, and known
    assert [group.state for group in groups] == ["live", "zero_variance"]


def test_metrics_are_of_the_tokens_that_went_through_the_pass() -> None:
    for known, expected in ([0, 1], 0.5), ([0, 1, 2, 3], 0.5), ([], math.nan):
        scored, credit, tokens = dead_group(known)
        metrics = step_metrics(scored, None, tokens, credit, Update({}, fault="", moved=True))
        assert metrics["sampling_logprob_diff"] == pytest.approx(expected, nan_ok=True)
    scored, credit, tokens = dead_group([0, 1])
    penalised = replace(credit, penalty_R=np.zeros(4))
    metrics = step_metrics(scored, None, tokens, penalised, Update({}, fault="", moved=True))
    assert metrics["kl"] == -0.5


def test_a_trace_of_what_was_left_out_has_its_tokens_and_null_for_the_rest() -> None:
    scored, _, tokens = dead_group([0, 1])
    texts = TokenTexts(tiny_policy(reference=False).tokenizer)
    file = trace_file([1, 2], texts, scored.rollout, tokens)
    assert file is not None
    passed, left_out = pq.read_table(BufferReader(base64.b64decode(file.data))).to_pylist()
    assert passed["old_logprob"] == [-0.5]
    assert passed["clipped"] == [False]
    assert left_out["token_ids"] == [5, 5]
    assert left_out["sampling_logprob"] == [-1.0, -1.0]
    assert all(left_out[name] is None for name in ("old_logprob", "logprob", "entropy", "ratio", "kl", "clipped"))
    scored, _, tokens = dead_group([])  # nothing passed: there is the sampler's side
    file = trace_file([0], texts, scored.rollout, tokens)
    assert file is not None
    assert file.rows == 1


@pytest.mark.parametrize(
    ("kept", "rows"),
    [("all", [0, 1, 2, 3, 4, 5]), ("periodic", [0, 1, 2, 3, 4, 5]), ("extremes", [1, 2, 3]), ("none", [])],
)
def test_which_completions_are_kept_token_by_token(kept: Any, rows: list[int]) -> None:
    rewards = np.array([[0.5, 0.0, 1.0], [1.0, 1.0, math.nan]])
    telemetry = Telemetry(token_traces=kept, trace_every=10)
    assert traced_rows(telemetry, 20, rewards) == rows
    assert traced_rows(telemetry, 21, rewards) == ([] if kept == "periodic" else rows)
