"""A series in few points: the ends, and of each stretch the lowest, the highest, and a gap where it has one."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Point = tuple[int, float | None]


class Stretch(NamedTuple):
    """Some steps of a series by their points. `low` and `high` have no step where no value was finite."""

    first_step: int
    first: float | None
    low_step: int | None
    low: float | None
    high_step: int | None
    high: float | None
    last_step: int
    last: float | None
    missing_step: int | None  # the first whose value was not finite


def stretch_of(step: int, value: float | None) -> Stretch:
    """The stretch of one point."""
    if value is None:
        return Stretch(step, None, None, None, None, None, step, None, step)
    return Stretch(step, value, step, value, step, value, step, value, None)


def joined(stretches: Iterable[Stretch]) -> Stretch:
    """One stretch of several that follow each other, at least one."""
    parts = list(stretches)
    known = [part for part in parts if part.low is not None and part.high is not None]
    low = min(known, key=lambda part: part.low or 0.0, default=parts[0])
    high = max(known, key=lambda part: part.high or 0.0, default=parts[0])
    missing = next((part.missing_step for part in parts if part.missing_step is not None), None)
    first, last = parts[0], parts[-1]
    return Stretch(
        first.first_step,
        first.first,
        low.low_step,
        low.low,
        high.high_step,
        high.high,
        last.last_step,
        last.last,
        missing,
    )


def drawn(stretches: Sequence[Stretch], limit: int) -> list[Point]:
    """The points of a series, at most `limit` (which is 4 or more): neighbours are joined until they fit."""
    points = _points(stretches, gaps=True)
    while len(points) > limit and len(stretches) > 1:
        stretches = [joined(stretches[at : at + 2]) for at in range(0, len(stretches), 2)]
        points = _points(stretches, gaps=True)
    return points if len(points) <= limit else _points(stretches, gaps=False)


def _points(stretches: Sequence[Stretch], *, gaps: bool) -> list[Point]:
    """By step, each once."""
    points: dict[int, float | None] = {}
    for one in stretches:
        if one.low_step is not None and one.high_step is not None:
            points[one.low_step] = one.low
            points[one.high_step] = one.high
        if gaps and one.missing_step is not None:
            points[one.missing_step] = None
    if stretches:
        points[stretches[0].first_step] = stretches[0].first
        points[stretches[-1].last_step] = stretches[-1].last
    return sorted(points.items())
