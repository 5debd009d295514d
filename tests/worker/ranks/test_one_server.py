"""Several processes sample with one vLLM server: they ask for what one process asks for, get the same, and train the same."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import BEGINNINGS
from together import apart, together, whole
from vllm_service import VllmService
from witness import Witness, configured, train
from worker_models import tiny_policy

from backend.contract.records import BY_RANK
from worker.policy.policy import Policy
from worker.ranks.ranks import ALONE, Ranks
from worker.rollout.vllm_engine import VllmEngine

pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.timeout(600)]

STEPS = 3
REMARK = "memory is short here"

Outcome = tuple[list[Any], list[str], dict[str, torch.Tensor]]


def trained(ranks: Ranks, folder: Path, url: str, model: dict[str, Any]) -> Outcome:
    """The reports, the warnings and the weights of a short training with an evaluation, by this process's account."""
    witness = Witness()
    folder.mkdir(parents=True, exist_ok=True)
    config = configured(
        model=model,
        rewards={"functions": [BEGINNINGS]},
        sampling={"engine": "vllm", "prompts_per_step": 3, "group_size": 2, "max_new_tokens": 8},
        budget={"steps": STEPS, "checkpoint_every": 0, "eval_every": STEPS, "eval_items": 1},
        optimizer={"learning_rate": 1e-3, "warmup_steps": 0},
    )
    engine: Callable[[Policy], VllmEngine] = partial(VllmEngine, url=url, weights=folder / "weights", api_key=None)
    # every process but the first remarks something, as one would whose memory ran out
    _, policy = train(config, folder, witness, ranks=ranks, engine=engine, remarks=[REMARK] * (ranks.rank > 0))
    reports = [message.model_dump(mode="json") for kind, message in witness.messages if kind == "report"]
    warned = [line.message for line in witness.said if line.level == "warning"]
    return reports, warned, {name: whole(one) for name, one in policy.named_parameters()}


def measured(reports: list[Any]) -> list[Any]:
    """What the reports say of each step, without the figures of single processes, which one alone has not."""
    return [
        [
            report["step"],
            {name: of for name, of in report["metrics"].items() if not name.startswith(BY_RANK)},
            *report["groups"],
        ]
        for report in reports
        if report["step"] is not None
    ]


@pytest.fixture
def service() -> Iterator[VllmService]:
    policy = tiny_policy(reference=False)
    with VllmService.serving(policy.config, policy.tokenizer) as one:
        yield one


def asked(service: VllmService) -> list[str]:
    """What was asked since the last look, in any order."""
    bodies, service.bodies = service.bodies, []
    return sorted(map(str, bodies))


@pytest.mark.parametrize(
    ("count", "shards", "model"),
    [
        (2, 2, {}),
        pytest.param(4, 2, {"lora": {"rank": 4, "alpha": 8}}, marks=pytest.mark.long),  # one of them has no group
        pytest.param(2, 1, {}, marks=pytest.mark.long),
    ],
)
def test_several_processes_and_one_server_train_what_one_process_trains(
    tmp_path: Path, service: VllmService, count: int, shards: int, model: dict[str, Any]
) -> None:
    reports, _, weights = trained(ALONE, tmp_path / "one", service.url, model)
    requests, loads = asked(service), service.control
    service.control = []
    several = together(count, shards, tmp_path / "meeting", trained, tmp_path / "several", service.url, model)
    assert asked(service) == requests
    assert service.control == loads == ["reload_weights", "reset_prefix_cache"] * (STEPS + 1)
    first, warned, _ = several[0]
    assert warned.count(REMARK) == 1
    assert apart(measured(reports), measured(first), by=1e-4) == []
    for _, _, own in several:
        assert all(torch.allclose(own[name], values, rtol=0, atol=1e-4) for name, values in weights.items())
    last = [report["metrics"] for report in first if f"{BY_RANK}0/seconds" in report["metrics"]][-1]
    sampled = sum(last[f"{BY_RANK}{rank}/tokens"] for rank in range(count))
    groups = [report["groups"] for report in first if report["groups"]][-1]
    assert sampled == sum(one["token_count"] for group in groups for one in group["completions"])
    assert all(last[f"{BY_RANK}{rank}/seconds"] > 0 for rank in range(count))
