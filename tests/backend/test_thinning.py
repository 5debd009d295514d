"""Long series in few points: each the mean of its stretch, with its extremes, at any length."""

import sys
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from acting import GRPO, Actor, began
from hypothesis import example, given
from hypothesis import strategies as st
from measured_series import KINDS, LENGTHS, by_step, drawn, record
from serving import Backend

from backend.contract.records import Series
from backend.telemetry import metrics
from backend.telemetry.stretches import fitting_width, in_stretches, stretch_of

lengths = pytest.mark.parametrize(
    "steps", [pytest.param(steps, marks=[pytest.mark.slow] if steps > 2_000 else []) for steps in LENGTHS]
)
VALUES = st.none() | st.floats(allow_nan=False, allow_infinity=False)


def covered(series: Series, values: Sequence[float | None]) -> list[list[float]]:
    """The finite values that each point stands for."""
    assert series.stretches is not None
    parts = zip(series.stretches.start, series.step, strict=True)
    return [[value for value in values[start : end + 1] if value is not None] for start, end in parts]


def mean_of(values: Sequence[float]) -> float:
    """Exact: of large numbers, too, whose sum is infinite, and of small ones, whose shares are 0."""
    return float(sum(map(Fraction, values)) / len(values))


@given(st.lists(VALUES, min_size=1, max_size=300), st.integers(1, 50))
@example([5e-324, 5e-324], 1)
@example([0.0, 5e-324, 5e-324], 1)
def test_each_point_is_the_mean_of_its_stretch_with_its_extremes(values: list[float | None], limit: int) -> None:
    width = fitting_width(0, len(values) - 1, limit)
    series = in_stretches((stretch_of(step, value) for step, value in enumerate(values)), width)
    assert len(series.step) <= limit
    assert width == 2 or -(-len(values) // (width // 2)) > limit, "no wider than it has to be"
    assert series.step[-1] == len(values) - 1
    assert series.stretches is not None
    for place, of_stretch in enumerate(covered(series, values)):
        stretch = {name: part[place] for name, part in series.stretches if name != "width"}
        assert stretch["start"] == place * width
        assert stretch["finite"] == len(of_stretch)
        assert stretch["missing"] == series.step[place] - stretch["start"] + 1 - len(of_stretch)
        if of_stretch:
            # 1e20 and 1, less 1e20, are 0 in one order of adding and 1 in another; the smallest numbers have few digits
            most = max(1e-9 * max(map(abs, of_stretch)), sys.float_info.min)
            assert series.value[place] == pytest.approx(mean_of(of_stretch), rel=1e-9, abs=most)
        else:
            assert series.value[place] is None
        for name, extreme in (("low", min), ("high", max)):
            assert stretch[name] == extreme(of_stretch, default=None)
            at = stretch[f"{name}_step"]
            assert stretch[name] == (None if at is None else values[at])


@lengths
def test_every_point_that_is_answered_is_the_mean_of_its_steps(backend: Backend, steps: int) -> None:
    truth = {kind: drawn(kind, steps) for kind in KINDS}
    run_id = record(backend, by_step(truth))
    answers = [
        backend.client.metrics(run_id, max_points=240),
        backend.client.metrics(run_id, names=KINDS, max_points=90),
        backend.client.metrics(run_id, from_step=steps // 3, to_step=steps - 2, max_points=60),
        backend.client.metrics(run_id, after_step=6, width=32),
        *backend.client.compare_metrics(runs=[run_id], names=KINDS, max_points=40).items,
        *backend.client.compare_metrics(runs=[run_id], names=KINDS, width=4).items,
    ]
    for answer in answers:
        for kind, series in answer.series.items():
            assert series.stretches is not None
            for start, end, value in zip(series.stretches.start, series.step, series.value, strict=True):
                assert value == pytest.approx(truth[kind][start : end + 1].mean(), rel=1e-9)
            whole = zip(series.stretches.start[1:], series.step, strict=False)
            assert all(start == end + 1 for start, end in whole), "no step between two stretches"


def test_runs_of_different_length_are_answered_in_the_same_stretches(backend: Backend) -> None:
    run_ids = [record(backend, by_step({"kl": drawn("exponential", steps)})) for steps in (240, 241, 900)]
    for width in (1, 2, 4, 32, 64):
        answers = backend.client.compare_metrics(runs=run_ids, names=["kl"], width=width).items
        starts = [
            one.series["kl"].step if width == 1 else one.series["kl"].stretches.start  # type: ignore[union-attr]
            for one in answers
        ]
        assert all(start % width == 0 for of_run in starts for start in of_run)
        assert all(short == long[: len(short)] for short, long in pairwise(starts))


def test_evaluations_are_answered_one_by_one_beside_stretches_and_thinned_where_they_are_too_many(
    backend: Backend,
) -> None:
    run_id = record(backend, [{"eval/pass@1": step / 30, "kl": 0.1} for step in range(30)])
    (compared,) = backend.client.compare_metrics(runs=[run_id], names=["eval/pass@1", "kl"], width=8).items
    assert compared.series["eval/pass@1"].step == list(range(30))
    assert compared.series["kl"].step == [7, 15, 23, 29]
    thinned = backend.client.metrics(run_id, max_points=10).series["eval/pass@1"]
    assert thinned.step == [3, 7, 11, 15, 19, 23, 27, 29]
    assert thinned.value[0] == pytest.approx(1.5 / 30)


def test_what_was_not_finite_moves_no_mean_a_constant_stays_and_the_largest_have_a_mean(backend: Backend) -> None:
    values = [None if step in (5, 6) or 16 <= step < 32 else float(step) for step in range(64)]
    largest = [1.7e308, -1.7e308, 1.7e308, 1.7e308]
    run_id = record(
        backend, [{"kl": value, "rate": 0.1, "reward": largest[step % 4]} for step, value in enumerate(values)]
    )
    answered = backend.client.metrics(run_id, width=16).series
    assert set(answered["rate"].value) == {0.1}
    assert answered["reward"].value[0] == pytest.approx(0.85e308)
    series = answered["kl"]
    assert series.value == [pytest.approx((sum(range(16)) - 11) / 14), None, 39.5, 55.5]
    assert series.stretches is not None
    assert series.stretches.finite == [14, 0, 16, 16]
    assert series.stretches.missing == [2, 16, 0, 0]
    assert series.stretches.low == [0.0, None, 32.0, 48.0]


def test_a_resume_takes_back_what_lies_beyond_it_from_the_means_too(backend: Backend) -> None:
    truth = drawn("exponential", 400)
    first = began(backend.client, {**GRPO, "budget": {"steps": 400}}, name="first")
    with backend.services.database.write() as tx:
        values = [(step, {"kl": float(truth[step]) if step < 101 else 1e6}) for step in range(230)]
        metrics.store(tx, first.run_id, first.attempt, values)
    first.save(101)
    backend.clock.now += 31
    second = Actor(backend.client, "second").begin(from_step=101)
    with backend.services.database.write() as tx:
        for step in range(101, 400):  # each by itself, which the stretches join
            metrics.store(tx, second.run_id, second.attempt, [(step, {"kl": float(truth[step])})])
    for width in (4, 64, 256, 1024):
        series = backend.client.metrics(second.run_id, width=width).series["kl"]
        means = [truth[start : start + width].mean() for start in range(0, 400, width)]
        assert series.value == pytest.approx(means, rel=1e-9)
        assert series.stretches is not None
        assert sum(series.stretches.finite) == 400


def test_a_series_that_is_logged_now_and_then_is_thinned_to_the_values_that_there_are(backend: Backend) -> None:
    truth = {step: step / 100 for step in range(0, 1200, 3)}
    run_id = record(
        backend, [{"reward": 0.0, **({"kl": truth[step]} if step in truth else {})} for step in range(1200)]
    )
    series = backend.client.metrics(run_id, names=["kl"], max_points=100).series["kl"]
    assert series.stretches is not None
    assert len(series.step) <= 100
    assert sum(series.stretches.finite) == len(truth)
    weighted = np.dot(np.asarray(series.value, dtype=float), series.stretches.finite)
    assert weighted == pytest.approx(sum(truth.values()), rel=1e-9)
