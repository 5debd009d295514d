"""What a run held is gone when it is over, without waiting for Python's collector: a GPU's memory does not call it."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_learner import advantages, train
from wire import Wire, claimed, worker
from worker_models import roll_out, tiny_policy

from backend.contract.grpo import GrpoConfig
from backend.contract.model import Lora, Model
from backend.contract.protocol import Fail, Finish
from backend.contract.training import Sampling
from worker import compute, job
from worker.job import Spent, run_claim
from worker.learner import Learner
from worker.optimization import Optimization
from worker.policy import device
from worker.policy.policy import Policy
from worker.policy.recording import Compute, Recomputation
from worker.rollout.draws import Draws
from worker.rollout.engine import Request
from worker.rollout.sampler import NativeEngine
from worker.rollout.slots import Slots

pytestmark = pytest.mark.slow

CONFIG = GrpoConfig(sampling=Sampling(prompts_per_step=4, group_size=3))


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held_by(policy: Policy) -> list[weakref.ref[torch.Tensor]]:
    weights = [weakref.ref(one) for one in policy.parameters()]
    return weights + [weakref.ref(one.grad) for one in policy.parameters() if one.grad is not None]


class Played(Recomputation):
    """As a graph does, it keeps nothing of how a step is computed."""

    def record(self, compute: Compute) -> Compute:
        compute()
        return lambda: None


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("lora", [None, Lora(rank=4)], ids=["all weights", "LoRA"])
def test_weights_gradients_and_slots_go_with_the_run(
    lora: Lora | None, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "cuda":
        as_gpu = replace(device._ABILITIES["cpu"], recorder=Played, asynchronous=True, keeps_copies=True)
        monkeypatch.setitem(device._ABILITIES, "cpu", as_gpu)
    policy = tiny_policy(Model(lora=lora))
    engine, learner = NativeEngine(policy), Learner(policy, CONFIG)
    rollout = roll_out(policy, CONFIG)
    engine.sample(Request(rollout.prompt_ids_P, 3, CONFIG.sampling, Draws(0, "train")))
    train(learner, rollout, advantages())
    held = held_by(policy)
    assert len(held) > len(policy.parameters())
    held += [weakref.ref(engine._slots._keys)] if engine._slots is not None else []
    assert (engine._weights is None) == (kind == "cpu")
    del policy, engine, learner, rollout
    assert not [one for one in held if one() is not None]


def begun(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[torch.Tensor]]:
    """What the jobs of this test hold: weights and gradients of every policy, and the sampler's slots."""
    held = list[weakref.ref[torch.Tensor]]()
    load, slots = compute.load_policy, Slots.__init__

    def loaded(*given: Any, **named: Any) -> Policy:
        policy: Policy = load(*given, **named)
        held.extend(held_by(policy))
        for weight in policy.parameters():
            weight.register_post_accumulate_grad_hook(lambda one: held.append(weakref.ref(one.grad)))
        return policy

    def made(self: Slots, *given: Any, **named: Any) -> None:
        slots(self, *given, **named)
        held.append(weakref.ref(self._keys))

    monkeypatch.setattr(compute, "load_policy", loaded)
    monkeypatch.setattr(Slots, "__init__", made)
    return held


TRAINED = {
    "kind": "grpo",
    "sampling": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 8},
    "budget": {"steps": 2, "eval_every": 0, "checkpoint_every": 0},
}


@pytest.mark.parametrize(
    ("config", "error", "outcome"),
    [
        (TRAINED, None, Finish),
        (TRAINED, "CUDA out of memory", Fail),
        (TRAINED, "CUDA error: device-side assert triggered", Fail),
        ({"kind": "sample", "prompts": ["2 + 2"], "group_size": 2}, None, Finish),
    ],
    ids=["a run", "out of memory", "a lost device", "a sample"],
)
def test_after_whatever_was_claimed_nothing_of_it_is_held(
    config: dict[str, object],
    error: str | None,
    outcome: type[Finish | Fail],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(self: Optimization, *given: object) -> None:
        raise RuntimeError(error)

    held, wire = begun(monkeypatch), Wire()
    monkeypatch.setattr(job.log, "exception", lambda *said: None)  # pytest keeps what is logged, with its frames
    if error is not None:
        monkeypatch.setattr(Optimization, "step", fails)
    with nullcontext() if error is None else pytest.raises(Spent):
        run_claim(worker(tmp_path, wire), claimed(config))
    assert isinstance(wire.told[-1], outcome)
    assert len(held) >= 38
    assert not [one for one in held if one() is not None]
