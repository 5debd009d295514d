"""The grid of a sweep."""

from math import prod

from drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.sweep.values import grid, size

VALUES = st.dictionaries(st.text(max_size=3), st.lists(st.integers(), max_size=4, unique=True), max_size=4)


@settings(max_examples=examples(50))
@given(VALUES)
def test_a_grid_has_every_combination_once(values: dict[str, list[int]]) -> None:
    points = grid(values)  # type: ignore[arg-type]
    assert len(points) == size(values) == (prod(map(len, values.values())) if values else 0)  # type: ignore[arg-type]
    assert len({repr(point) for point in points}) == len(points)
    assert all(point[field] in some for point in points for field, some in values.items())


def test_the_last_field_changes_first() -> None:
    assert grid({"a": [1, 2], "b": ["x", "y"]}) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_without_a_field_there_is_no_point() -> None:
    assert grid({}) == []
