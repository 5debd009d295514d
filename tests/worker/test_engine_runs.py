"""A whole run on each engine: what is sampled in every step comes from the weights of that step."""

from pathlib import Path

import pytest
from vllm_service import VllmService
from wire import Wire, claimed, worker
from worker_models import tiny_policy

from backend.contract.protocol import Fail, Finish, Report
from worker.job import run_claim

pytestmark = pytest.mark.slow


def run_with(engine: str, home: Path, **settings: object) -> Wire:
    """Steps large enough that weights which stayed behind would be seen in the log-probs."""
    wire = Wire()
    config = {
        "kind": "grpo",
        "sampling": {"engine": engine, "prompts_per_step": 2, "group_size": 4},
        "optimizer": {"learning_rate": 2e-3},
        "budget": {"steps": 3, "eval_every": 3, "eval_items": 2, "checkpoint_every": 0},
    }
    run_claim(worker(home, wire, **settings), claimed(config))
    return wire


def assert_trained_on_its_own_samples(wire: Wire) -> None:
    assert isinstance(wire.told[-1], Finish), wire.told[-1]
    steps = {one.step: one.metrics for one in wire.told if isinstance(one, Report) and one.groups}
    assert sorted(step for step in steps if step is not None) == [0, 1, 2]
    for metrics in steps.values():
        difference = metrics["sampling_logprob_diff"]
        assert difference is not None
        assert difference < 1e-4
    assert any((metrics["grad_norm"] or 0) > 0 for metrics in steps.values())


@pytest.mark.thorough
def test_a_run_on_transformers_continuous_batching(tmp_path: Path) -> None:
    assert_trained_on_its_own_samples(run_with("transformers", tmp_path))


def test_a_run_on_a_vllm_server(tmp_path: Path) -> None:
    plain = tiny_policy(reference=False)
    with VllmService.serving(plain.config, plain.tokenizer) as service:
        wire = run_with("vllm", tmp_path, vllm_url=service.url, vllm_weights=tmp_path / "weights")
    assert_trained_on_its_own_samples(wire)
    assert service.control.count("reload_weights") > 1


def test_a_run_on_an_engine_that_the_worker_has_not_fails_with_what_to_do(tmp_path: Path) -> None:
    end = run_with("vllm", tmp_path).told[-1]
    assert isinstance(end, Fail)
    assert end.error.code == "engine_missing"
    assert "sampling.engine" in end.error.message
    assert not end.retryable
