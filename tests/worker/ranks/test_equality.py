"""Several processes train what one trains: the same tokens, and every number of every step."""

import base64
import io
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from together import apart, in_float64, together, whole
from witness import Witness, configured, train

from backend.contract.recipes import RECIPES
from backend.contract.records import BY_RANK
from worker.ranks.ranks import ALONE, Ranks

STEPS = 10
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
        report["metrics"] = {name: of for name, of in report["metrics"].items() if not name.startswith(BY_RANK)}
    return reported, traces, {name: whole(one) for name, one in policy.named_parameters()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Outcome]:
    """What one process makes of a variant."""
    folder = tmp_path_factory.mktemp("alone")
    return cache(lambda name, steps: trained(ALONE, folder, [name], steps)[name])


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("count", "shards", "names", "steps"),
    [
        (2, 2, ["dapo with refill", "ppo with a value head", "unequal numbers of micro-batches"], 2),
        *(
            pytest.param(*given, STEPS, marks=pytest.mark.long)
            for given in [
                (2, 2, [*VARIANTS]),
                (3, 3, [*VARIANTS]),  # four prompts: two, one and one
                (2, 1, ["ppo with a value head", "lora", "a reference that follows"]),
                (4, 2, ["gspo with two updates"]),
            ]
        ),
    ],
)
def test_several_processes_train_what_one_trains(
    tmp_path: Path, alone: Callable[[str, int], Outcome], count: int, shards: int, names: Sequence[str], steps: int
) -> None:
    first, *others = together(count, shards, tmp_path, trained, tmp_path, names, steps)
    for name in names:
        reports, traces, weights = alone(name, steps)
        assert apart(reports, first[name][0], name) == []
        assert len(traces) == steps
        assert apart(traces, first[name][1], f"{name}, traces", by=2e-6) == []
        for *_, own in (first[name], *(other[name] for other in others)):
            assert own.keys() == weights.keys()
            for parameter, values in weights.items():
                assert torch.allclose(own[parameter], values, rtol=0, atol=1e-10), (name, parameter)
