"""Several processes train what one trains, by themselves or with one vLLM server: the same tokens, and every number of every step."""

import base64
import io
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from processes import BEGINNINGS
from together import apart, in_float64, together, whole
from vllm_service import VllmService
from witness import Witness, configured, train
from worker_models import tiny_policy

from backend.contract.recipes import RECIPES
from backend.contract.records import BY_RANK
from worker.ranks.ranks import ALONE, Ranks
from worker.rollout.vllm_engine import VllmEngine

pytestmark = [pytest.mark.thorough, pytest.mark.slow]

STEPS = 4
RECIPE = {card.id: card.config for card in RECIPES}
SAMPLING = {"prompts_per_step": 4, "group_size": 4, "max_new_tokens": 24}
PENALISED = {"kl": {"beta": 0.04}}
VARIANTS: dict[str, dict[str, Any]] = {
    "grpo with a KL penalty": {"algorithm": RECIPE["grpo"]["algorithm"] | PENALISED},
    "dapo with refill": {"algorithm": RECIPE["dapo"]["algorithm"], "rewards": RECIPE["dapo"]["rewards"]},
    "ppo with a value head": {"algorithm": RECIPE["ppo"]["algorithm"]},
    "gspo with two updates": {"algorithm": RECIPE["gspo"]["algorithm"] | {"updates_per_batch": 2}},
    "lora": {"model": {"lora": {"rank": 4, "alpha": 8}}, "algorithm": PENALISED},
    "dead groups left out": {"algorithm": {"kl": {"beta": 0}}, "sampling": SAMPLING | {"group_size": 2}},
    "recomputed activations": {"model": {"gradient_checkpointing": True}},
    "a reference that follows": {"algorithm": {"kl": {"reference": "synced", "sync_every": 2}}},
    "by transformers' own loop": {"fast": False},
    # Of three groups one process has two, which pass through the reference, and through the policy for their values, in more parts.
    "unequal numbers of micro-batches": {
        "sampling": SAMPLING | {"prompts_per_step": 3},
        "optimizer": {"learning_rate": 1e-3, "micro_batch_tokens": 48},
        "algorithm": RECIPE["ppo"]["algorithm"],
    },
}

Outcome = tuple[list[Any], list[Any], dict[str, torch.Tensor]]


def trained(ranks: Ranks, folder: Path, names: Sequence[str], steps: int) -> dict[str, Outcome]:
    """What was reported, its token traces, and the weights, of a training in float64 of each variant."""
    return {name: outcome(ranks, folder / name, dict(VARIANTS[name]), steps) for name in names}


def outcome(ranks: Ranks, store: Path, variant: dict[str, Any], steps: int) -> Outcome:
    fast = variant.pop("fast", True)
    budget = {"steps": steps, "checkpoint_every": 0, "eval_every": steps, "eval_items": 3}
    witness = Witness()
    store.mkdir(parents=True, exist_ok=True)
    with in_float64():
        _, policy = train(
            configured(**{"budget": budget, "sampling": SAMPLING, **variant}), store, witness, ranks=ranks, fast=fast
        )
    reported = [message.model_dump(mode="json") for kind, message in witness.messages if kind == "report"]
    # As values: they are rounded to float32 in the file, where two that differ by 1e-16 may become two that differ, and so do the files.
    files = [trace["data"] for report in reported if (trace := report.pop("trace")) is not None]
    traces = [pq.read_table(io.BytesIO(base64.b64decode(file))).to_pylist() for file in files]
    for report in reported:  # one process alone has no figures by process, and does not say that it is alone
        for line in report["logs"]:
            line["message"] = line["message"].replace(f"{ranks.count} processes, ", "")
        report["metrics"] = of_all(report)
    return reported, traces, {name: whole(one) for name, one in policy.named_parameters()}


def of_all(report: dict[str, Any]) -> dict[str, Any]:
    """The metrics of a report, without the figures of single processes, which one alone has not."""
    return {name: of for name, of in report["metrics"].items() if not name.startswith(BY_RANK)}


SIZES = [(2, 2), (3, 3)]  # processes, and parts of the weights: of four prompts three processes have two, one and one
ALSO_AT = {(2, 1): ["ppo with a value head", "lora", "a reference that follows"], (4, 2): ["gspo with two updates"]}
OTHERS = [name for name in VARIANTS if all(name not in names for names in ALSO_AT.values())]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("sizes", "names", "steps"),
    [
        ([(2, 2)], ["dapo with refill", "ppo with a value head", "unequal numbers of micro-batches"], 2),
        *(
            pytest.param(sizes, names, STEPS, marks=pytest.mark.long)
            for sizes, names in [(SIZES, OTHERS), *(([*SIZES, size], names) for size, names in ALSO_AT.items())]
        ),
    ],
)
def test_several_processes_train_what_one_trains(
    tmp_path: Path, sizes: Sequence[tuple[int, int]], names: Sequence[str], steps: int
) -> None:
    alone = trained(ALONE, tmp_path / "alone", names, steps)
    for count, shards in sizes:
        folder = tmp_path / f"{count} and {shards}"
        first, *others = together(count, shards, folder, trained, folder, names, steps)
        for name, (reports, traces, weights) in alone.items():
            assert apart(reports, first[name][0], name) == []
            assert len(traces) == steps
            assert apart(traces, first[name][1], f"{name}, traces", by=2e-6) == []
            for *_, own in (first[name], *(other[name] for other in others)):
                assert own.keys() == weights.keys()
                for parameter, values in weights.items():
                    assert torch.allclose(own[parameter], values, rtol=0, atol=1e-10), (name, parameter)


# ---- with one server

SERVED_STEPS = 3
REMARK = "memory is short here"


def trained_by_a_server(
    ranks: Ranks, folder: Path, url: str, model: dict[str, Any]
) -> tuple[list[Any], list[str], dict[str, torch.Tensor]]:
    """The reports, the warnings and the weights of a short training with an evaluation, by this process's account."""
    witness = Witness()
    folder.mkdir(parents=True, exist_ok=True)
    config = configured(
        model=model,
        rewards={"functions": [BEGINNINGS]},
        sampling={"engine": "vllm", "prompts_per_step": 3, "group_size": 2, "max_new_tokens": 8},
        budget={"steps": SERVED_STEPS, "checkpoint_every": 0, "eval_every": SERVED_STEPS, "eval_items": 1},
        optimizer={"learning_rate": 1e-3, "warmup_steps": 0},
    )
    engine = partial(VllmEngine, url=url, weights=folder / "weights", api_key=None)
    # every process but the first remarks something, as one would whose memory ran out
    _, policy = train(config, folder, witness, ranks=ranks, engine=engine, remarks=[REMARK] * (ranks.rank > 0))
    reports = [message.model_dump(mode="json") for kind, message in witness.messages if kind == "report"]
    warned = [line.message for line in witness.said if line.level == "warning"]
    return reports, warned, {name: whole(one) for name, one in policy.named_parameters()}


def measured(reports: list[Any]) -> list[Any]:
    """What the reports say of each step."""
    return [[one["step"], of_all(one), *one["groups"]] for one in reports if one["step"] is not None]


@pytest.fixture
def service() -> Iterator[VllmService]:
    policy = tiny_policy(reference=False)
    with VllmService.serving(policy.config, policy.tokenizer) as one:
        yield one


def asked(service: VllmService) -> list[str]:
    """What was asked since the last look, in any order."""
    bodies, service.bodies = service.bodies, []
    return sorted(map(str, bodies))


@pytest.mark.timeout(600)
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
    reports, _, weights = trained_by_a_server(ALONE, tmp_path / "one", service.url, model)
    requests, loads = asked(service), service.control
    service.control = []
    given = (tmp_path / "several", service.url, model)
    several = together(count, shards, tmp_path / "meeting", trained_by_a_server, *given)
    assert asked(service) == requests
    assert service.control == loads == ["reload_weights", "reset_prefix_cache"] * (SERVED_STEPS + 1)
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
