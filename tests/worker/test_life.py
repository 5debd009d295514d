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
from wire import Wire, claimed, worker

from backend.contract.protocol import Fail, Finish
from worker import compute, job
from worker.job import Spent, run_claim
from worker.optimization import Optimization
from worker.policy import device
from worker.policy.policy import Policy
from worker.policy.recording import Compute, Recomputation
from worker.rollout.slots import Slots

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Played(Recomputation):
    """As a graph does, it keeps nothing of how a step is computed."""

    def record(self, compute: Compute) -> Compute:
        compute()
        return lambda: None


def begun(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[torch.Tensor]]:
    """What the jobs of this test hold: weights and gradients of every policy, and the sampler's slots."""
    held = list[weakref.ref[torch.Tensor]]()
    load, slots = compute.load_policy, Slots.__init__

    def loaded(*given: Any, **named: Any) -> Policy:
        policy: Policy = load(*given, **named)
        for weight in policy.parameters():
            held.append(weakref.ref(weight))
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
    ("config", "as_gpu", "error", "outcome"),
    [
        (TRAINED, False, None, Finish),
        (TRAINED, True, None, Finish),
        (TRAINED | {"model": {"lora": {"rank": 4}}}, True, None, Finish),
        (TRAINED, False, "CUDA out of memory", Fail),
        (TRAINED, False, "CUDA error: device-side assert triggered", Fail),
        ({"kind": "sample", "prompts": ["2 + 2"], "group_size": 2}, False, None, Finish),
    ],
    ids=["a run", "as a GPU does it", "adapters", "out of memory", "a lost device", "a sample"],
)
def test_after_whatever_was_claimed_nothing_of_it_is_held(
    config: dict[str, object],
    as_gpu: bool,
    error: str | None,
    outcome: type[Finish | Fail],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(self: Optimization, *given: object) -> None:
        raise RuntimeError(error)

    held, wire = begun(monkeypatch), Wire()
    monkeypatch.setattr(job.log, "exception", lambda *said: None)  # pytest keeps what is logged, with its frames
    if as_gpu:
        abilities = replace(device._ABILITIES["cpu"], recorder=Played, asynchronous=True, keeps_copies=True)
        monkeypatch.setitem(device._ABILITIES, "cpu", abilities)
    if error is not None:
        monkeypatch.setattr(Optimization, "step", fails)
    with nullcontext() if error is None else pytest.raises(Spent):
        run_claim(worker(tmp_path, wire), claimed(config))
    assert isinstance(wire.told[-1], outcome)
    assert len(held) >= 38
    assert not [one for one in held if one() is not None]
