"""The GPU's way through sampling, on a CPU: steps are recorded and computed again, and ended rows are looked for every few tokens only."""

import random
import weakref
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from worker_models import items, tiny_policy

from backend.contract.algorithm import Logprobs
from backend.contract.training import Decoding
from worker.policy import device
from worker.policy.recording import _MOST, _WORTH, Compute, CudaGraphs, Recomputation, RecordedSteps
from worker.rollout import slots
from worker.rollout.draws import Draws
from worker.rollout.engine import Request
from worker.rollout.sampler import NativeEngine
from worker.rollout.slots import _GROWTH, _ROWS, _WIDTH, SLACK, Drawing, Slots, _at_least

pytestmark = pytest.mark.slow

Shape = tuple[int, int, Drawing]


class Counted(Recomputation):
    """Knows what was recorded: of sampling how many rows of which width, and how they are drawn; else what is computed."""

    def __init__(self, recorded: list[Any]) -> None:
        self._all = recorded

    def record(self, compute: Compute) -> Compute:
        if isinstance(compute, partial):
            _, rows, width = compute.args
            self._all.append((rows, width, compute.func.__self__.drawing))
        else:
            self._all.append(compute())  # type: ignore[func-returns-value]
        return super().record(compute)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Shape]:
    """From here on a CPU samples as a GPU does; what was recorded."""
    all_recorded = list[Shape]()
    without = {"varlen": False, "whole_norm": False, "logits_bytes": 2**24}
    as_gpu = replace(device._ABILITIES["cuda"], recorder=lambda: Counted(all_recorded), **without)
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


TOP_K, TOP_P = {"temperature": 0.7, "top_k": 5}, {"top_p": 0.8}


@pytest.mark.parametrize(
    ("decoding", "logprobs"),
    [
        ({}, "tempered"),
        (TOP_K, "renormalized"),
        *(
            pytest.param(decoding, logprobs, marks=pytest.mark.thorough)
            for decoding, logprobs in (
                ({"stop": ["</think>", "= 1"]}, "tempered"),
                ({"max_new_tokens": 1}, "tempered"),
                (TOP_P, "renormalized"),
            )
        ),
    ],
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
        for mine, theirs in zip(engine.sample(one), before, strict=True):
            assert replace(mine, logprobs=[]) == replace(theirs, logprobs=[])
            assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
    assert recorded


def test_what_is_sampled_between_steps_costs_no_recorded_one(recorded: list[Shape]) -> None:
    engine = NativeEngine(tiny_policy(reference=False))
    for one in BETWEEN:  # a run begins with an evaluation, which is the largest
        engine.sample(one)
    recorded.clear()
    for step in range(12):  # three of each
        engine.sample(asked(step))
        engine.sample(BETWEEN[step % len(BETWEEN)])
    assert max(Counter(recorded).values()) == 1
    assert len(recorded) <= 24


@pytest.mark.thorough
def test_steps_of_long_completions_are_recorded_once() -> None:
    """256 rows of up to 4,096 tokens in training, 48 in a refill, 64 greedy ones in an evaluation every five steps."""
    draw, recorded = random.Random(0), list[Shape]()
    steps = RecordedSteps(Counted(recorded))
    for step in range(60):
        for rows, how in ((256, "drawn"), (48, "drawn"), *([(64, "greedy")] if step % 5 == 0 else [])):
            lengths = sorted(min(4096, int(draw.expovariate(1 / 1000)) + 1) for _ in range(rows))
            for at in range(0, lengths[-1], SLACK):
                left = sum(length > at for length in lengths)
                shape = min(rows, _at_least(left, _ROWS, 2.0)), _at_least(256 + at, _WIDTH, _GROWTH), how
                for _ in range(SLACK):
                    steps.run(shape, lambda shape=shape: shape)  # type: ignore[misc]
    assert max(Counter(recorded).values()) == 1


class Replayed(CudaGraphs):
    """CUDA's own, of which a CPU plays none: what it would play is computed again."""

    def record(self, compute: Compute) -> Compute:
        play = super().record(compute)
        return lambda: (compute(), play())


@pytest.mark.parametrize("logprobs", ["tempered", "renormalized"])
def test_recorded_steps_hold_no_logits_but_those_that_are_asked_for_in_one_array(
    logprobs: Logprobs, recorded: list[Shape], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Graph:
        def replay(self) -> None:
            recorded.append((0, 0, Drawing.of(STEP)))

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, pool: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setitem(device._ABILITIES, "cpu", replace(device._ABILITIES["cpu"], recorder=Replayed))
    logits, arrays, truncate, step = list[weakref.ref[Tensor]](), set[int](), slots.truncate, Slots.step

    def truncated(*given: Any, **named: Any) -> Tensor:
        made = truncate(*given, **named)
        logits.append(weakref.ref(made))
        return made

    def watched(self: Slots, *given: Any) -> None:
        step(self, *given)
        arrays.update(() if self.allowed is None else [self.allowed.data_ptr()])

    monkeypatch.setattr(slots, "truncate", truncated)
    monkeypatch.setattr(Slots, "step", watched)
    engine = NativeEngine(tiny_policy(reference=False))
    for prompts in (8, 4, 2):
        engine.sample(asked(0, prompts=prompts, logprobs=logprobs, top_k=5))
    assert recorded
    assert not [one for one in logits if one() is not None]
    assert len(arrays) == (logprobs == "renormalized")


def test_of_many_shapes_the_ones_that_were_not_played_for_longest_are_computed_again() -> None:
    recorded = list[int]()
    steps = RecordedSteps(Counted(recorded))

    def visit(shape: int, times: int) -> None:
        for _ in range(times):
            steps.run(shape, lambda: shape)

    for shape in range(_MOST + 10):
        visit(shape, _WORTH + 1)
    visit(_MOST, 1)
    assert recorded == list(range(_MOST + 10))
    visit(0, _WORTH)  # it went: to be recorded again it must come as often
    assert len(recorded) == _MOST + 10
    visit(0, 1)
    assert recorded[-1] == 0


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
