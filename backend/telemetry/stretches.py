"""Series in stretches of steps: of each the mean, the extremes, and how many values there were; computed, and stored as roll-ups.

For stretches of 4 to 1,024 steps a report updates five roll-ups for each of its metrics, so that 10,000 steps are drawn from
some hundred rows. Evaluations are few and have none.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, case, delete, func, literal, or_, select

from backend.contract import records as r
from backend.contract.protocol import EVALUATION
from backend.storage import history
from backend.storage.statements import insert_into
from backend.storage.tables import METRIC_WIDTHS, attempt, metric, metric_stretch

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
    # the mean of equal values is that value, even if rounding put it beyond them
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


kept = metric_stretch.c


# Built once, and read all at once: a comparison of 20 runs asks for each of them, and gets 12,000 rows.
_OF_SERIES = kept.run_id == bindparam("run_id"), kept.name.in_(bindparam("names", expanding=True))
_EXTENTS = (
    select(kept.name, func.min(kept.first_step), func.max(kept.last_step), func.sum(kept.finite + kept.missing))
    .where(*_OF_SERIES, kept.width == METRIC_WIDTHS[-1])
    .where(kept.last_step >= bindparam("low"), kept.first_step <= bindparam("high"))
    .group_by(kept.name)
)
_STRETCHES = (
    select(kept.name, *(kept[field] for field in Stretch._fields))
    .where(*_OF_SERIES, kept.width == bindparam("width"))
    .where(kept.start >= bindparam("first"), kept.start <= bindparam("last"))
    .order_by(kept.name, kept.start)
)


class Extent(NamedTuple):
    """Where the stretches of a series lie that meet a window, and how many values they hold."""

    first_step: int
    last_step: int
    values: int


def extents(tx: Connection, parts: Sequence[history.Segment], names: Collection[str]) -> dict[str, Extent]:
    """The extent of each series that has stretches in these parts of a run's history."""
    found: dict[str, Extent] = {}
    for run_id, low, high in parts:
        values = {"run_id": run_id, "names": list(names), "low": low, "high": high}
        for name, first, last, count in tx.execute(_EXTENTS, values):
            earlier = found.get(name, Extent(first, last, 0))
            found[name] = Extent(earlier.first_step, min(last, high), earlier.values + count)
    return found


def read(
    tx: Connection, run_id: int, names: Collection[str], width: int, start: int, stop: int
) -> dict[str, list[tuple[Any, ...]]]:
    """The stretches of one width, of those within the steps from `start` up to `stop`, by series; each with the fields of a Stretch."""
    values = {"run_id": run_id, "names": list(names), "width": width, "first": start, "last": stop - width}
    rows = groupby(tx.execute(_STRETCHES, values).all(), key=itemgetter(0))
    return {name: [row[1:] for row in of_name] for name, of_name in rows}


def add(tx: Connection, run_id: int, of_steps: Sequence[tuple[int, Mapping[str, float | None]]]) -> None:
    """Count the values of some steps, in any order; evaluations aside."""
    points: dict[str, list[Stretch]] = defaultdict(list)
    for step, values in of_steps:
        for name, value in values.items():
            if not name.startswith(EVALUATION):
                points[name].append(stretch_of(step, value))
    rows = [
        {"run_id": run_id, "width": width, "name": name, "start": cell[0] - cell[0] % width}
        | dict(zip(Stretch._fields, cell, strict=True))
        for name, of_name in points.items()
        for width in METRIC_WIDTHS
        for cell in _joined(sorted(of_name, key=itemgetter(0)), width)
    ]
    if rows:
        tx.execute(_addition(tx.dialect.name), rows)


def cut(tx: Connection, run_id: int, from_step: int) -> None:
    """Forget stretches that reach beyond `from_step`, from which a new attempt goes on, and count those across it anew."""
    tx.execute(delete(metric_stretch).where(kept.run_id == run_id, kept.start + kept.width > from_step))
    for width in METRIC_WIDTHS:
        start = from_step - from_step % width
        if start < from_step:
            tx.execute(_merged(tx.dialect.name, _counted(run_id, width, start, from_step)))


def _counted(run_id: int, width: int, start: int, stop: int) -> Any:
    """The live values of the steps from `start` up to `stop`, each as a stretch of its own."""
    step, value = metric.c.step, metric.c.value
    known, at = value.is_not(None), case((value.is_not(None), step))
    point = (step, step, case((known, 1), else_=0), case((known, 0), else_=1), value, at, value, at, value)
    columns = {
        "run_id": literal(run_id),
        "width": literal(width),
        "name": metric.c.name,
        "start": literal(start),
        **dict(zip(Stretch._fields, point, strict=True)),
    }
    return (
        select(*(column.label(name) for name, column in columns.items()))
        .join(attempt, history.of_attempt(metric))
        .where(metric.c.run_id == run_id, step >= start, step < stop, history.live(step))
        .where(~history.is_evaluation())
        .order_by(step, metric.c.attempt)
    )


@cache  # each report asks for it, and building it costs as much as running it
def _addition(dialect: str) -> Any:
    return _merged(dialect)


def _merged(dialect: str, rows: Any = None) -> Any:
    """Insert stretches, each into the one that is there already."""
    statement = insert_into(dialect, metric_stretch)
    if rows is not None:
        statement = statement.from_select([column.name for column in rows.selected_columns], rows)
    new = statement.excluded
    finite = kept.finite + new.finite
    values: dict[str, Any] = {
        "first_step": case((new.first_step < kept.first_step, new.first_step), else_=kept.first_step),
        "last_step": case((new.last_step > kept.last_step, new.last_step), else_=kept.last_step),
        "finite": finite,
        "missing": kept.missing + new.missing,
        # not by way of the sum, which may be infinite though the mean is not
        "mean": case(
            (new.finite == 0, kept.mean),
            (kept.finite == 0, new.mean),
            else_=kept.mean * (kept.finite / finite) + new.mean * (new.finite / finite),
        ),
    }
    better = {
        "low": or_(kept.low.is_(None), new.low < kept.low),
        "high": or_(kept.high.is_(None), new.high > kept.high),
    }
    for name, condition in better.items():
        for column in (name, f"{name}_step"):
            values[column] = case((condition, new[column]), else_=kept[column])
    return statement.on_conflict_do_update(index_elements=list(metric_stretch.primary_key), set_=values)
