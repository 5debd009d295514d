"""A series in few points: of each stretch of steps the mean, the extremes, and how many values there were."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from backend.contract import records as r

Point = tuple[int, float | None]


class Stretch(NamedTuple):
    """Some neighbouring steps of a series in few numbers. Mean and extremes are of the finite values, and None without any."""

    first_step: int
    last_step: int
    finite: int  # values
    missing: int  # values that were not finite
    mean: float | None
    low_step: int | None
    low: float | None
    high_step: int | None
    high: float | None


def stretch_of(step: int, value: float | None) -> Stretch:
    """The stretch of one point."""
    if value is None:
        return Stretch(step, step, 0, 1, None, None, None, None, None)
    return Stretch(step, step, 1, 0, value, step, value, step, value)


def fitting_width(first: int, last: int, limit: int, *, smallest: int = 2, factor: int = 2) -> int:
    """How wide stretches are, aligned at step 0, of which at most `limit` cover these steps."""
    width = smallest
    while last // width - first // width >= limit:
        width *= factor
    return width


def plain(points: Sequence[Point]) -> r.Series:
    """A point for each value."""
    return r.Series(step=[step for step, _ in points], value=[value for _, value in points])


def in_stretches(parts: Iterable[tuple[Any, ...]], width: int, low: int = 0) -> r.Series:
    """A point for each `width` steps, of parts (the fields of a Stretch) that lie in one of them each; steps below `low` are not covered."""
    columns = [list(column) for column in zip(*_joined(parts, width), strict=True)] or [[] for _ in Stretch._fields]
    first, last, finite, missing, mean, low_step, lows, high_step, highs = columns
    # not validated: these are tens of thousands of numbers that this program computed
    of = r.Stretches.model_construct(
        width=width,
        start=[max(low, step - step % width) for step in first],
        finite=finite,
        missing=missing,
        low_step=low_step,
        low=lows,
        high_step=high_step,
        high=highs,
    )
    # the mean of equal values is that value, also where rounding put it beyond them
    value = [
        None if one is None else min(max(one, least), most) for one, least, most in zip(mean, lows, highs, strict=True)
    ]
    return r.Series.model_construct(step=last, value=value, stretches=of)


def _joined(parts: Iterable[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """The parts that lie in one stretch as one; as plain lists, since a comparison of runs has tens of thousands."""
    cells: list[list[Any]] = []
    number = None
    for part in parts:
        if part[0] // width != number:
            number = part[0] // width
            cell = list(part)
            cells.append(cell)
            continue
        _, cell[1], finite, missing, mean, low_step, low, high_step, high = part
        cell[3] += missing
        if finite and cell[2]:
            total = cell[2] + finite
            cell[4] = cell[4] * (cell[2] / total) + mean * (finite / total)  # no sum: it could be infinite
            cell[2] = total
            if low < cell[6]:
                cell[5:7] = low_step, low
            if high > cell[8]:
                cell[7:9] = high_step, high
        elif finite:
            cell[2], cell[4:] = finite, [mean, low_step, low, high_step, high]
    return cells
