"""The GPU's way through sampling, on a CPU: steps are recorded and computed again, and ended rows are looked for every few tokens only."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from torch import Tensor
from worker_models import items, tiny_policy

from backend.contract.training import Decoding
from worker.policy import device
from worker.policy.recording import Compute, Recomputation
from worker.rollout.draws import Draws
from worker.rollout.engine import Completion, Logprobs, Request
from worker.rollout.sampler import NativeEngine
from worker.rollout.slots import Drawing, Slots

Shape = tuple[int, int, Drawing]


class Counted(Recomputation):
    """Knows what was recorded: how many rows of which width, and how they are drawn."""

    def __init__(self, recorded: list[Shape]) -> None:
        self._all = recorded

    def record(self, compute: Compute) -> Compute:
        assert isinstance(compute, partial)
        _, rows, width = compute.args
        self._all.append((rows, width, compute.func.__self__.drawing))
        return super().record(compute)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Shape]:
    """From here on a CPU samples as a GPU does; what was recorded."""
    all_recorded = list[Shape]()
    as_gpu = replace(
        device._ABILITIES["cuda"],
        recorder=lambda: Counted(all_recorded),
        lines=False,
        whole_norm=False,
        logits_bytes=2**24,
    )
    monkeypatch.setitem(device._ABILITIES, "cpu", as_gpu)
    return all_recorded


PROMPTS = [tiny_policy(reference=False).encode(item)[1] for item in items(8)]


def asked(
    step: int, *, prompts: int = 4, draws: bool = True, logprobs: Logprobs = "tempered", **decoding: Any
) -> Request:
    how = Decoding.model_validate({"max_new_tokens": 40, **decoding})
    return Request(PROMPTS[:prompts], 4, how, Draws(1, "train", step) if draws else None, logprobs, first_group=step)


STEP = asked(0)
BETWEEN = [
    asked(1, prompts=2),  # probes
    asked(2, prompts=8, draws=False),  # an evaluation
    asked(3, prompts=1),  # what dynamic sampling draws again
    asked(4, prompts=3, max_new_tokens=60),
]


def contents(completions: Sequence[Completion]) -> list[tuple[object, ...]]:
    return [(one.ids, one.text, one.finish_reason, one.supports) for one in completions]


@pytest.mark.parametrize("logprobs", ["tempered", "renormalized"])
@pytest.mark.parametrize(
    "decoding",
    [{}, {"temperature": 0.7, "top_k": 5}, {"top_p": 0.8}, {"stop": ["</think>", "= 1"]}, {"max_new_tokens": 1}],
    ids=["plain", "top-k", "top-p", "stop", "one token"],
)
def test_recorded_steps_draw_what_computed_ones_draw(
    decoding: dict[str, Any], logprobs: Logprobs, request: pytest.FixtureRequest
) -> None:
    requests = [asked(0, logprobs=logprobs, **decoding)]
    requests = [*requests, *BETWEEN, *requests, asked(5, logprobs=logprobs, **decoding)]
    eager = NativeEngine(tiny_policy(reference=False))
    expected = [eager.sample(one) for one in requests]
    recorded: list[Shape] = request.getfixturevalue("recorded")
    engine = NativeEngine(tiny_policy(reference=False))
    for one, before in zip(requests, expected, strict=True):
        found = engine.sample(one)
        assert contents(found) == contents(before)
        for mine, theirs in zip(found, before, strict=True):
            assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
    assert recorded


def test_what_is_sampled_between_steps_costs_no_recorded_one(recorded: list[Shape]) -> None:
    engine = NativeEngine(tiny_policy(reference=False))
    for one in BETWEEN:  # a run begins with an evaluation, which is the largest
        engine.sample(one)
    recorded.clear()
    for step in range(100):
        engine.sample(asked(step))
        engine.sample(BETWEEN[step % len(BETWEEN)])
    assert max(Counter(recorded).values()) == 1
    assert len(recorded) <= 24


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("decoding", "logprobs", "most"),
    [({}, "tempered", 1.0), ({"stop": ["</think>", "= 1"]}, "tempered", 1.0), ({"top_k": 5}, "renormalized", 5.0)],
    ids=["plain", "stop texts", "renormalized"],
)
def test_the_host_asks_the_device_as_often_for_many_rows_as_for_few(
    decoding: dict[str, Any], logprobs: Logprobs, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, asks, steps, here = NativeEngine(tiny_policy(reference=False)), list[int](), list[int](), list[Tensor]()
    to_host, listed, step = Tensor.cpu, Tensor.tolist, Slots.step

    def cpu(self: Tensor) -> Tensor:
        here.append(to_host(self).clone())
        asks.append(1)
        return here[-1]

    def tolist(self: Tensor) -> Any:
        if self.untyped_storage().data_ptr() not in {one.untyped_storage().data_ptr() for one in here[-1:]}:
            asks.append(1)
        return listed(self)

    monkeypatch.setattr(Tensor, "cpu", cpu)
    monkeypatch.setattr(Tensor, "tolist", tolist)
    monkeypatch.setattr(Slots, "step", lambda *given: steps.append(1) or step(*given))
    for prompts in (1, 8):
        asks.clear(), steps.clear(), here.clear()
        engine.sample(asked(0, prompts=prompts, logprobs=logprobs, **decoding))
        assert len(asks) <= 8 + most * len(steps)
