"""Values of a sweep as people type them and those that it begins with, their grid, and random points.

These are in range, of the right type, different from each other, and the same for the same seed.
"""

from math import floor, log10, prod
from random import Random

import pytest
from drawing import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from backend.contract.base import Json
from backend.contract.config import RUN_CONFIG
from backend.contract.recipes import RECIPES
from dashboard.form.schema import Field, Lines, Real, Settings, Text, Whole
from dashboard.stored import put
from dashboard.sweep.fields import sweepable
from dashboard.sweep.values import (
    EmptyRange,
    Range,
    Unreadable,
    bounds,
    draw,
    grid,
    read_bound,
    read_values,
    size,
    suggested,
    write_values,
)

REAL, WHOLE = Real("rate"), Whole("size", minimum=1, maximum=64)
QUICKSTART = RECIPES[0].config
FIELDS = sweepable(QUICKSTART)


@pytest.mark.parametrize(
    ("field", "text", "values"),
    [
        (REAL, "1e-5, 3e-5 1e-4", [1e-5, 3e-5, 1e-4]),
        (REAL, "1; 1.0\n−0.5", [1.0, -0.5]),
        (REAL, "", []),
        (WHOLE, "8 16, 8", [8, 16]),
        (WHOLE, "1e1", [10]),
        (Real("delta", optional=True), "none, 2", [None, 2.0]),
        (Text("prompt"), "one, two\nthree\\nlines", ["one, two", "three\nlines"]),
        (Lines("stop"), "[a, b]\n[]", [["a", "b"], []]),
    ],
)
def test_lists_are_read_as_people_type_them(field: Field, text: str, values: list[Json]) -> None:
    assert read_values(field, text) == values
    assert [type(value) for value in read_values(field, text)] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("field", "text", "reason"),
    [
        (REAL, "1e-5, fast", "“fast” is not a number"),
        (REAL, "inf", "“inf” is not a number"),
        (REAL, "none", "“none” is not a number"),
        (WHOLE, "8, 2.5", "2.5 is not a whole number"),
        (WHOLE, "0", "below the minimum, 1"),
        (WHOLE, "65", "above the maximum, 64"),
        (Lines("stop"), "[a", "as in YAML"),
        (Settings("params"), "{day: 2026-01-01}", "as in YAML"),
        (Settings("params"), "{low: .inf}", "as in YAML"),
    ],
)
def test_what_is_no_value_is_named(field: Field, text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        read_values(field, text)


@settings(max_examples=examples(50))
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), unique_by=repr))
def test_numbers_are_read_as_they_were_written(values: list[float]) -> None:
    numbers: list[Json] = [value + 0.0 for value in values]
    assert read_values(REAL, write_values(REAL, numbers)) == list(dict.fromkeys(numbers))


@settings(max_examples=examples(50))
@given(
    st.lists(
        st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.just("\n"), max_size=5)),
        unique_by=repr,
    )
)
def test_lists_of_texts_are_read_as_they_were_written(values: list[Json]) -> None:
    field = Lines("stop")
    assert read_values(field, write_values(field, values)) == values


def test_a_bound_is_a_number() -> None:
    assert read_bound(WHOLE, "8") == 8
    with pytest.raises(Unreadable, match="needs a number"):
        read_bound(WHOLE, " ")
    with pytest.raises(Unreadable, match="both ends"):
        read_bound(Real("delta", optional=True), "none")


@pytest.mark.parametrize("path", [path for path, one in FIELDS.items() if one.numeric])
def test_every_number_begins_with_values_and_a_range_that_the_base_would_take(path: str) -> None:
    one = FIELDS[path]
    values = read_values(one.field, write_values(one.field, suggested(one, QUICKSTART)))
    assert values == suggested(one, QUICKSTART)
    for value in values:
        RUN_CONFIG.validate_python(put(QUICKSTART, path, value))
    ends = bounds(one, QUICKSTART)
    if all(ends):
        Range(read_bound(one.field, ends[0]), read_bound(one.field, ends[1]))
        for end in ends:
            RUN_CONFIG.validate_python(put(QUICKSTART, path, read_bound(one.field, end)))


def test_the_learning_rate_begins_around_its_own() -> None:
    one = FIELDS["optimizer.learning_rate"]
    base = put(QUICKSTART, one.path, 1e-4)
    assert isinstance(base, dict)
    assert suggested(one, base) == [5e-5, 1e-4, 2e-4]
    assert bounds(one, base) == ("1e-5", "0.001")


@settings(max_examples=examples(50))
@given(st.dictionaries(st.text(max_size=3), st.lists(st.integers(), max_size=4, unique=True), max_size=4))
def test_a_grid_has_every_combination_once(values: dict[str, list[int]]) -> None:
    points = grid(values)  # type: ignore[arg-type]
    assert len(points) == size(values) == (prod(map(len, values.values())) if values else 0)  # type: ignore[arg-type]
    assert len({repr(point) for point in points}) == len(points)
    assert all(point[field] in some for point in points for field, some in values.items())


def test_in_a_grid_the_last_field_changes_first_and_without_a_field_there_is_no_point() -> None:
    points = [(point["a"], point["b"]) for point in grid({"a": [1, 2], "b": ["x", "y"]})]
    assert points == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]
    assert grid({}) == []


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
    decades = [floor(log10(source.draw(numbers))) for _ in range(4000)]
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
