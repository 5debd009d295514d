"""A series in few points: of each stretch of steps the mean, the extremes, and how many values there were."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

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


def joined(parts: Sequence[Stretch]) -> Stretch:
    """One stretch of several that follow each other, at least one."""
    if len(parts) == 1:
        return parts[0]
    known = [part for part in parts if part.finite]
    finite = sum(part.finite for part in known)
    low = min(known, key=lambda part: part.low or 0.0, default=parts[0])
    high = max(known, key=lambda part: part.high or 0.0, default=parts[0])
    return Stretch(
        parts[0].first_step,
        parts[-1].last_step,
        finite,
        sum(part.missing for part in parts),
        # each part divided by itself: the sum of values near the largest number would be infinite
        sum((part.mean or 0.0) * (part.finite / finite) for part in known) if known else None,
        low.low_step,
        low.low,
        high.high_step,
        high.high,
    )


def fitting_width(first: int, last: int, limit: int, *, smallest: int = 2, factor: int = 2) -> int:
    """How wide stretches are, aligned at step 0, of which at most `limit` cover these steps."""
    width = smallest
    while last // width - first // width >= limit:
        width *= factor
    return width


def plain(points: Sequence[Point]) -> r.Series:
    """A point for each value."""
    return r.Series(step=[step for step, _ in points], value=[value for _, value in points])


def in_stretches(parts: Iterable[Stretch], width: int, low: int = 0) -> r.Series:
    """A point for each `width` steps, of parts that lie in one of them each; steps below `low` are not covered."""
    cells = [joined(list(of_cell)) for _, of_cell in groupby(parts, key=lambda part: part.first_step // width)]
    return r.Series(
        step=[cell.last_step for cell in cells],
        value=[_mean(cell) for cell in cells],
        stretches=r.Stretches(
            width=width,
            start=[max(low, cell.first_step - cell.first_step % width) for cell in cells],
            finite=[cell.finite for cell in cells],
            missing=[cell.missing for cell in cells],
            low_step=[cell.low_step for cell in cells],
            low=[cell.low for cell in cells],
            high_step=[cell.high_step for cell in cells],
            high=[cell.high for cell in cells],
        ),
    )


def _mean(cell: Stretch) -> float | None:
    """Between its extremes, also where rounding put it beyond them: the mean of equal values is that value."""
    if cell.mean is None or cell.low is None or cell.high is None:
        return None
    return min(max(cell.mean, cell.low), cell.high)
