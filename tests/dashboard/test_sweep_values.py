"""Values of a sweep as people type them, those that it begins with, and the grid of them."""

from math import prod

import pytest
from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.contract.base import Json
from backend.contract.config import RUN_CONFIG
from backend.contract.recipes import RECIPES
from dashboard.form.schema import Field, Lines, Real, Settings, Text, Whole
from dashboard.stored import put
from dashboard.sweep.fields import sweepable
from dashboard.sweep.values import (
    Range,
    Unreadable,
    bounds,
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
