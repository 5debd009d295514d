"""Random points of a sweep: in range, of the right type, different from each other, and the same for the same seed."""

import math
from random import Random

import pytest
from drawing import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dashboard.sweep.values import EmptyRange, Range, draw

POSITIVE = st.floats(1e-12, 1e12)
SEEDS = st.integers(0, 2**31 - 1)


@st.composite
def ranges(choose: st.DrawFn) -> Range:
    whole, log = choose(st.booleans()), choose(st.booleans())
    number = st.integers(1 if log else -1000, 1000) if whole else POSITIVE if log else st.floats(-1e6, 1e6)
    low, high = sorted((choose(number), choose(number)))
    assume(high - low > 1e-9 * max(abs(low), abs(high)))
    return Range(low, high, log=log, whole=whole)


SOURCES = st.dictionaries(
    st.sampled_from(["optimizer.learning_rate", "sampling.group_size", "algorithm.ratio"]),
    ranges() | st.lists(st.sampled_from(["token", "sequence", None, True, 1]), min_size=1, unique_by=repr),
    min_size=1,
)


@settings(max_examples=examples(50))
@given(ranges(), SEEDS)
def test_every_draw_lies_in_its_range_and_whole_numbers_stay_whole(source: Range, seed: int) -> None:
    numbers = Random(seed)
    for _ in range(20):
        value = source.draw(numbers)
        assert source.low <= value <= source.high
        assert type(value) is (int if source.whole else float)


@settings(max_examples=examples(50))
@given(SOURCES, SEEDS, st.integers(1, 30))
def test_the_same_seed_draws_the_same_points_more_begin_with_the_same_and_none_is_drawn_twice(
    sources: dict[str, Range | list[object]], seed: int, count: int
) -> None:
    points = draw(sources, count, seed)  # type: ignore[arg-type]
    assert points == draw(sources, count, seed)  # type: ignore[arg-type]
    assert draw(sources, count + 5, seed)[: len(points)] == points  # type: ignore[arg-type]
    assert len(points) == len(set(map(repr, points))) <= count


@settings(max_examples=examples(50))
@given(st.integers(1, 12), SEEDS)
def test_where_there_are_fewer_points_than_asked_for_all_of_them_are_drawn(size: int, seed: int) -> None:
    points = draw({"a": list(range(size)), "b": [False, True]}, 2 * size + 5, seed)
    assert sorted((point["a"], point["b"]) for point in points) == [(a, b) for a in range(size) for b in (False, True)]


def test_other_seeds_draw_other_points_and_a_field_beside_another_leaves_its_draws_as_they_are() -> None:
    rate = Range(1e-6, 1e-3, log=True)
    assert draw({"rate": rate}, 5, 0) != draw({"rate": rate}, 5, 1)
    alone = draw({"rate": rate}, 10, 3)
    both = draw({"size": Range(2, 64, whole=True), "rate": rate}, 10, 3)
    assert [point["rate"] for point in both] == [point["rate"] for point in alone]


def test_a_scale_draws_every_decade_or_every_whole_number_as_often() -> None:
    numbers = Random(0)
    source = Range(1e-6, 1e-2, log=True)
    decades = [math.floor(math.log10(source.draw(numbers))) for _ in range(4000)]
    # a share of 1/4 of 4,000 draws has a standard deviation of 27; rounding moves few across a border
    assert all(abs(decades.count(decade) - 1000) < 120 for decade in (-6, -5, -4, -3))

    numbers = Random(0)
    values = [Range(1, 5, whole=True).draw(numbers) for _ in range(4000)]
    assert all(abs(values.count(value) - 800) < 110 for value in range(1, 6))


def test_draws_read_as_people_write_numbers() -> None:
    numbers = Random(1)
    assert all(len(f"{Range(1e-6, 1e-3, log=True).draw(numbers):g}") <= len("1.23e-06") for _ in range(100))


@pytest.mark.parametrize(
    ("low", "high", "log", "reason"),
    [
        (1, 1, False, "1 is not below 1"),
        (2, 1, False, "2 is not below 1"),
        (0, 1, True, "above 0"),
        (-1e308, 1e308, False, "wider"),
    ],
)
def test_a_range_without_numbers_says_why(low: float, high: float, log: bool, reason: str) -> None:
    with pytest.raises(EmptyRange, match=reason):
        Range(low, high, log=log)
