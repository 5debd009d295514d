"""A whole run on each engine: what is sampled in every step comes from the weights of that step."""

from pathlib import Path

import pytest
import torch
from vllm_service import VllmService
from worker_models import tiny_policy

from backend.contract.client import Client
from backend.contract.protocol import (
    Accepted,
    CheckpointReport,
    Claim,
    Fail,
    Finish,
    Heartbeat,
    HeartbeatReply,
    Report,
    Start,
    WorkerInfo,
)
from worker.job import run_claim
from worker.settings import Settings
from worker.worker import Worker

pytestmark = pytest.mark.slow


class Wire(Client):
    """A client that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self.reports: list[Report] = []
        self.end: Finish | Fail | None = None

    def heartbeat(self, run_id: int, beat: Heartbeat) -> HeartbeatReply:
        return HeartbeatReply(requested="nothing", lease_seconds=30)

    def start(self, run_id: int, start: Start) -> Accepted:
        return Accepted()

    def report(self, run_id: int, report: Report) -> Accepted:
        self.reports.append(report)
        return Accepted()

    def checkpoint(self, run_id: int, checkpoint: CheckpointReport) -> Accepted:
        return Accepted()

    def finish(self, run_id: int, finish: Finish) -> Accepted:
        self.end = finish
        return Accepted()

    def fail(self, run_id: int, fail: Fail) -> Accepted:
        self.end = fail
        return Accepted()


def run_with(engine: str, home: Path, **settings: object) -> Wire:
    """Steps large enough that weights which stayed behind would be seen in the log-probs."""
    wire = Wire()
    chosen = Settings.model_validate({"home": home, **settings})
    info = WorkerInfo(name="one", device="CPU", store=f"{chosen.store}#1")
    config = {
        "kind": "grpo",
        "sampling": {"engine": engine, "prompts_per_step": 2, "group_size": 4},
        "optimizer": {"learning_rate": 2e-3},
        "budget": {"steps": 3, "eval_every": 3, "eval_items": 2, "checkpoint_every": 0},
    }
    claim = Claim.model_validate(
        {"run_id": 7, "name": "a run", "attempt": 1, "config": config, "lease_seconds": 30, "secret": "shown"}
    )
    run_claim(Worker(chosen, info, wire, torch.device("cpu"), lambda: False), claim)
    return wire


def assert_trained_on_its_own_samples(wire: Wire) -> None:
    assert isinstance(wire.end, Finish), wire.end
    steps = {report.step: report.metrics for report in wire.reports if report.groups}
    assert sorted(step for step in steps if step is not None) == [0, 1, 2]
    for metrics in steps.values():
        difference = metrics["sampling_logprob_diff"]
        assert difference is not None
        assert difference < 1e-4
    assert any((metrics["grad_norm"] or 0) > 0 for metrics in steps.values())


def test_a_run_on_transformers_continuous_batching(tmp_path: Path) -> None:
    assert_trained_on_its_own_samples(run_with("transformers", tmp_path))


def test_a_run_on_a_vllm_server(tmp_path: Path) -> None:
    plain = tiny_policy(reference=False)
    with VllmService.serving(plain.config, plain.tokenizer) as service:
        wire = run_with("vllm", tmp_path, vllm_url=service.url, vllm_weights=tmp_path / "weights")
    assert_trained_on_its_own_samples(wire)
    assert service.control.count("reload_weights") > 1


def test_a_run_on_an_engine_that_the_worker_has_not_fails_with_what_to_do(tmp_path: Path) -> None:
    wire = run_with("vllm", tmp_path)
    assert isinstance(wire.end, Fail)
    assert wire.end.error.code == "engine_missing"
    assert "sampling.engine" in wire.end.error.message
    assert not wire.end.retryable
