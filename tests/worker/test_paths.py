"""Fast paths: they change rounding and nothing else, and a run says where one was not used."""

import base64
import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from witness import Witness, configured, train

from worker.policy.decoder import Decoder


@pytest.mark.slow
def test_fast_paths_change_no_token_of_a_rollout_and_log_probs_by_rounding_only(tmp_path: Path) -> None:
    config = configured(telemetry={"token_traces": "all"}, budget={"steps": 1, "eval_every": 0})
    told = []
    for fast in (True, False):
        witness = Witness()
        _, policy = train(config, tmp_path / str(fast), witness, fast=fast)
        assert policy.packs == fast
        told.append(witness.steps[0])
    rows = [[one for group in report.groups for one in group.completions] for report in told]
    assert [one.text for one in rows[0]] == [one.text for one in rows[1]]
    traces = [pq.read_table(io.BytesIO(base64.b64decode(report.trace.data))) for report in told if report.trace]
    assert traces[0]["token_ids"] == traces[1]["token_ids"]
    for name in ("sampling_logprob", "old_logprob", "reference_logprob", "entropy"):
        fast_values, plain_values = (trace[name].combine_chunks().flatten().to_numpy() for trace in traces)
        assert abs(fast_values - plain_values).max() < 1e-4, name


@pytest.mark.slow
def test_a_resume_by_other_paths_than_before_is_said(tmp_path: Path) -> None:
    first, second = Witness(), Witness()
    config = configured(budget={"steps": 2, "checkpoint_every": 1, "eval_every": 0})
    train(config, tmp_path, first)
    train(config, tmp_path, second, resume=tmp_path / "run-1" / "step-1-attempt-1", attempt=2, fast=False)
    said = [line.message for line in second.said]
    assert any("step 1" in line and "packed" in line and "plain" in line for line in said)
    assert not any("differ in rounding" in line.message for line in first.said)


@pytest.mark.slow
def test_a_fast_path_that_is_given_up_is_said_in_the_runs_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Decoder, "normalise", lambda self, x: 2 * x)
    witness = Witness()
    train(configured(budget={"steps": 1, "eval_every": 0}), tmp_path, witness)
    said = [(line.level, line.message) for line in witness.said]
    assert any(
        level == "warning" and "training pass (packed)" in line and "plain forward" in line for level, line in said
    )
    assert any(level == "warning" and "sampler" in line and "plain forward" in line for level, line in said)
