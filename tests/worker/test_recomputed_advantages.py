"""The what-if, with a run's own settings, gives the advantages that trained it: bit for bit, by every recipe and estimator."""

import base64
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from pyarrow import BufferReader
from witness import Witness, train
from worker_models import items

from backend.contract.advantage import Advantage
from backend.contract.base import Json
from backend.contract.groups import GroupReport, RewardScore, TokenTrace
from backend.contract.grpo import GrpoConfig
from backend.contract.inspection import CompletionScores, GroupScores
from backend.contract.protocol import Report
from backend.contract.recipes import RECIPES
from dashboard.algorithm.recomputation import Own, StepArrays, arrays_of, difference, read_own, recompute, total
from dashboard.what_if.changes import traced
from dashboard.what_if.words import kl_in_loss, kl_per_token
from worker.algorithms.total_reward import total_reward
from worker.credit import assign_credit
from worker.group_records import filtered_reports, group_reports
from worker.groups import Scored
from worker.rewards.scoring import Scores
from worker.rollout.engine import Completion, Rollout
from worker.token_record import TokenRecord

ON_GROUPS = [card for card in RECIPES if card.config["kind"] == "grpo"]
ESTIMATORS = [member.model_fields["kind"].default for member in get_args(get_args(Advantage)[0])]
P, G, T = 7, 6, 5
TRACED = ("token_ids", "ratio", "logprob", "old_logprob", "clipped")
GATED: dict[str, Json] = {
    "functions": [
        {"kind": "correctness", "name": "right", "weight": 0.7},
        {"kind": "format", "name": "formed", "weight": 0.1},
        {"kind": "length", "name": "short", "weight": -0.35},
        {"kind": "pattern", "name": "measured", "weight": 0, "patterns": ["x"]},
    ],
    "gates": [{"reward": "right", "requires": "formed", "at_least": 0.5}],
}


def as_stored(groups: list[GroupReport]) -> StepArrays:
    """The groups after their way through JSON."""
    records = [GroupReport.model_validate_json(group.model_dump_json()) for group in groups]
    arrays = arrays_of(
        [
            GroupScores(
                id=place,
                completions=[
                    CompletionScores(id=one.index, **one.model_dump(include=set(CompletionScores.model_fields)))
                    for one in group.completions
                ],
                **group.model_dump(include=set(GroupScores.model_fields) - {"completions"}),
            )
            for place, group in enumerate(records)
        ]
    )
    assert arrays is not None
    return arrays


def trained(config: GrpoConfig, folder: Path) -> list[Report]:
    """What a run reports of its steps."""
    witness = Witness()
    train(config, folder, witness)
    return list(witness.steps.values())


def read(config: GrpoConfig) -> Own:
    own = read_own(json.loads(config.model_dump_json()))
    assert own is not None
    return own


def assert_exact(step: StepArrays, own: Own) -> list[str]:
    """Advantages, rewards, statistics and states are the stored ones, each with ==. Returns the states."""
    again = recompute(step, own, own.settings)
    assert again.advantages_P_G.tolist() == step.advantages_P_G.tolist()
    assert difference(step, again) == 0
    assert again.states == [group.state for group in step.groups]
    assert finite(again.statistics.scored_P) == [group.scored for group in step.groups]
    assert finite(again.statistics.mean_P) == [group.reward_mean for group in step.groups]
    assert finite(again.statistics.std_P) == [group.reward_std for group in step.groups]
    if own.rewards is not None:
        np.testing.assert_array_equal(total(step, own, own.rewards, own.settings.beta), step.rewards_P_G)
    return [*again.states]


def finite(values_P: np.ndarray) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values_P.tolist()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "card",
    [
        pytest.param(card, id=card.id, marks=[pytest.mark.thorough] if place else [])
        for place, card in enumerate(ON_GROUPS)
    ],
)
def test_what_trained_by_a_recipe_is_recomputed_exactly(card: object, tmp_path: Path) -> None:
    config = shrunken(card.config)  # type: ignore[attr-defined]
    reports = trained(config, tmp_path)
    assert len(reports) == config.budget.steps
    states = [assert_exact(as_stored(report.groups), read(config)) for report in reports]
    assert "live" in {state for of_step in states for state in of_step}


def shrunken(recipe: Mapping[str, Json]) -> GrpoConfig:
    """The recipe on the tiny model: two steps that sample warmly, so that groups differ."""
    config = GrpoConfig.model_validate(recipe)
    quickstart = GrpoConfig.model_validate(RECIPES[0].config)
    changes: dict[str, object] = {
        "model": quickstart.model,
        "sampling": config.sampling.model_copy(
            update={"prompts_per_step": 4, "group_size": 6, "max_new_tokens": 48, "temperature": 1.2}
        ),
        "optimizer": config.optimizer.model_copy(update={"warmup_steps": 0}),
        "budget": config.budget.model_copy(update={"steps": 2, "eval_every": 0, "checkpoint_every": 0}),
        "telemetry": config.telemetry.model_copy(update={"probe_every": 1}),
    }
    if config.model.source != quickstart.model.source:
        changes |= {"task": quickstart.task, "rewards": quickstart.rewards}
    return GrpoConfig.model_validate(config.model_copy(update=changes).model_dump())


@pytest.mark.slow
@pytest.mark.thorough
def test_the_kls_part_is_what_the_loss_has_beside_advantages_that_add_up_to_0(tmp_path: Path) -> None:
    config = trained_hard({"kl": {"beta": 0.5}})
    reports = trained(config, tmp_path)
    kls = [kl_in_loss(as_stored(report.groups), read(config)) for report in reports]
    losses = [report.metrics["loss"] for report in reports]
    assert kls[-1] is not None
    assert kls[-1] > 1e-3
    assert [0.5 * (kl or 0.0) for kl in kls] == pytest.approx(losses, abs=1e-6)
    metric = [report.metrics["kl"] for report in reports]
    assert [kl_per_token(as_stored(report.groups)) for report in reports] == pytest.approx(metric)


@pytest.mark.slow
@pytest.mark.parametrize("surrogate", [{"kind": "clip", "epsilon_high": 0.1}, {"kind": "cispo", "cap": 1.1}])
@pytest.mark.thorough
def test_the_runs_own_range_clips_the_tokens_that_the_run_clipped(surrogate: Json, tmp_path: Path) -> None:
    config = trained_hard({"surrogate": surrogate, "updates_per_batch": 3})
    own, clipped = read(config), 0
    for report in trained(config, tmp_path):
        assert report.trace is not None
        for row in pq.read_table(BufferReader(base64.b64decode(report.trace.data))).to_pylist():
            trace = TokenTrace(completion_id=0, texts=[], **{name: row[name] for name in TRACED})
            advantage = report.groups[row["group"]].completions[row["completion"]].advantage
            tokens = traced(trace, own.settings.surrogate, advantage)
            if tokens is None:  # of a dead group, which passed through no model
                assert trace.ratio is None
                continue
            assert (tokens.low | tokens.high).tolist() == trace.clipped
            clipped += sum(trace.clipped or [])
    assert clipped


def trained_hard(algorithm: Mapping[str, Json]) -> GrpoConfig:
    """A run that moves far in three steps."""
    parts = {
        "sampling": {"prompts_per_step": 4, "group_size": 6, "max_new_tokens": 48, "temperature": 1.2},
        "optimizer": {"learning_rate": 2e-3},
        "budget": {"steps": 3, "eval_every": 0, "checkpoint_every": 0},
    }
    return GrpoConfig.model_validate({**parts, "algorithm": {"kl": {"beta": 0}, **algorithm}})


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("placement", ["loss", "reward"])
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_estimator_is_recomputed_exactly_with_gates_gaps_and_a_penalty(
    kind: str, placement: str, seed: int
) -> None:
    summed = kind == "normalize_then_sum"
    kl = {"beta": 0.037, "placement": "loss" if summed else placement}
    sampling = {"prompts_per_step": P, "group_size": G, "max_new_tokens": T}
    algorithm = {"advantage": {"kind": kind}, "kl": kl, "truncated_completions": "mask"}
    rewards = GATED | ({"gates": []} if summed else {})
    config = GrpoConfig.model_validate({"sampling": sampling, "rewards": rewards, "algorithm": algorithm})
    scored, tokens = rolled_out(config, np.random.default_rng(seed))
    credit = assign_credit(config, scored.scores, tokens)
    groups = group_reports(scored.rollout, scored.scores, credit, tokens, beta=config.algorithm.kl.beta)
    assert {group.state for group in groups} == {"live", "zero_variance", "unscored"}
    replaced = filtered_reports(scored, first_index=P)  # what was replaced has no part in the batch's numbers
    assert_exact(as_stored(groups + replaced), read(config))


def rolled_out(config: GrpoConfig, numbers: np.random.Generator) -> tuple[Scored, TokenRecord]:
    """Scores with many digits, one group of equal ones, one that nothing could score, and gaps."""
    rows = P * G
    components = [
        [RewardScore(name=one.name, raw=_raw(row, numbers), weight=one.weight) for one in config.rewards.functions]
        for row in range(rows)
    ]
    totals = [total_reward({score.name: score.raw for score in parts}, config.rewards) for parts in components]
    lengths = numbers.integers(1, T + 1, rows)
    tokens = TokenRecord(torch.arange(T)[None, :] < torch.from_numpy(lengths)[:, None])
    for name in ("kl", "value"):
        tokens.put(name, range(rows), torch.from_numpy(numbers.normal(0, 0.1, (rows, T))).float())
    completions = [
        Completion([5] * int(length), [-1.0] * int(length), "length" if length == T else "stop", "x")
        for length in lengths
    ]
    rollout = Rollout(items(P), ["prompt"] * P, [[7]] * P, G, completions)
    return Scored(rollout, Scores(components, np.array(totals))), tokens


def _raw(row: int, numbers: np.random.Generator) -> float | None:
    group = row // G
    if group == 1:
        return 1.0
    return None if group == 2 or numbers.random() < 0.05 else float(numbers.random())
