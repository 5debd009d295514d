"""Metrics in long format: stored by report, read as live series, thinned for charts by the extremes of each stretch."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from sqlalchemy import ColumnElement, Connection, case, select

from backend.contract import records as r
from backend.contract.protocol import EVALUATION
from backend.storage.tables import attempt, metric, run
from backend.storage.upsert import upsert
from backend.telemetry import history, stretches
from backend.telemetry.thinning import Point, Stretch, drawn, joined, stretch_of

LAST = 2**63 - 1
FINER_ROWS = 10_000  # read in about 40 ms; the charts of a page are far from it, all metrics of a run are not


@dataclass(frozen=True)
class Window:
    """Which part of a series is wanted, and in how many points at most."""

    names: Collection[str] = ()
    after_step: int | None = None
    from_step: int | None = None
    to_step: int | None = None
    max_points: int | None = None
    finer: bool = False  # from up to twice as many stretches as fit (they lie a factor of 4 apart), unless that is too much to read


def store(tx: Connection, run_id: int, attempt_: int, step: int, values: Mapping[str, float | None]) -> None:
    """Add the values of one report; the same metric at the same step again replaces it."""
    rows = [
        {"run_id": run_id, "name": name, "step": step, "attempt": attempt_, "value": value}
        for name, value in values.items()
    ]
    if rows:
        upsert(tx, metric, rows)
        stretches.add(tx, run_id, step, values)


def is_live() -> ColumnElement[bool]:
    """Evaluations are states, the rest belongs to steps; in a query joined to the attempt."""
    evaluation = metric.c.name.startswith(EVALUATION, autoescape=True)
    return case((evaluation, history.live_state(metric.c.step)), else_=history.live(metric.c.step))


def read(tx: Connection, run_id: int, window: Window) -> r.Metrics:
    """The live series of a run, by name; in so many points at most where the window says so, and then mostly from roll-ups."""
    low = max(window.from_step or 0, 0 if window.after_step is None else window.after_step + 1)
    high = LAST if window.to_step is None else window.to_step
    series: Mapping[str, Sequence[Point]]
    if window.max_points is None:
        series = _raw(tx, run_id, window.names, low, high)
    else:
        names = window.names or _names(tx, run_id)
        finer = window.finer and len(names) * window.max_points <= FINER_ROWS
        rows = window.max_points if finer else window.max_points // 2
        series = _thinned(tx, run_id, names, low, high, window.max_points, rows)
    return r.Metrics(run_id=run_id, series={name: _series(series[name]) for name in sorted(series)})


def _series(points: Sequence[Point]) -> r.Series:
    return r.Series(step=[step for step, _ in points], value=[value for _, value in points])


def _names(tx: Connection, run_id: int) -> list[str]:
    """The names of a run's live series; the run's row keeps the latest value of each."""
    return list(tx.execute(select(run.c.summary).where(run.c.id == run_id)).scalar_one_or_none() or ())


def _raw(tx: Connection, run_id: int, names: Collection[str], low: int, high: int) -> dict[str, list[Point]]:
    """Every live point of some series, or of all, between two steps."""
    query = (
        select(metric.c.name, metric.c.step, metric.c.value)
        .join(attempt, history.of_attempt(metric))
        .where(metric.c.run_id == run_id, is_live(), metric.c.step >= low, metric.c.step <= high)
        .order_by(metric.c.name, metric.c.step, metric.c.attempt)
    )
    if names:
        query = query.where(metric.c.name.in_(names))
    rows = groupby(tx.execute(query), key=itemgetter(0))
    return {name: list({step: value for _, step, value in of_name}.items()) for name, of_name in rows}


def _thinned(
    tx: Connection, run_id: int, names: Collection[str], low: int, high: int, limit: int, rows: int
) -> dict[str, Sequence[Point]]:
    """The series in at most `limit` points each: those that have more come from the finest roll-ups of at most `rows` rows."""
    extents = stretches.extents(tx, run_id, names, low, high)
    newest = max((extent.last_step for extent in extents.values()), default=0)
    by_width: dict[int | None, list[str]] = defaultdict(list)
    for name in names:
        by_width[_width(extents.get(name), low, high, limit, rows)].append(name)
    series: dict[str, Sequence[Point]] = {}
    for width, group in by_width.items():
        if width is None:
            raw = _raw(tx, run_id, group, low, high)
            series |= {name: thinned(points, limit) for name, points in raw.items()}
        else:
            found = _stretches(tx, run_id, group, width, low, high if high < newest else _end(newest, width))
            series |= {name: drawn(parts, limit) for name, parts in found.items()}
    return series


def _width(extent: stretches.Extent | None, low: int, high: int, limit: int, rows: int) -> int | None:
    """Of the stretches to read; None: the points themselves."""
    if extent is None:
        return None
    steps = min(high, extent.last_step) - max(low, extent.first_step) + 1
    if min(steps, extent.values) <= limit:
        return None
    fitting = (width for width in stretches.WIDTHS if -(-steps // width) + 1 <= rows)
    return next(fitting, stretches.WIDTHS[-1])


def _end(step: int, width: int) -> int:
    """The last step of the stretch that a step lies in."""
    return step - step % width + width - 1


def _stretches(
    tx: Connection, run_id: int, names: Collection[str], width: int, low: int, high: int
) -> dict[str, list[Stretch]]:
    """What covers a window: whole stretches, and where it begins or ends within one, the points there as another."""
    start, stop = -(-low // width) * width, (high + 1) // width * width
    inner = stretches.read(tx, run_id, names, width, start, stop)
    head = _raw(tx, run_id, names, low, min(start - 1, high)) if low < start else {}
    tail = _raw(tx, run_id, names, max(start, stop), high) if max(start, stop) <= high else {}
    return {
        name: [*_one(head.get(name)), *inner.get(name, ()), *_one(tail.get(name))]
        for name in head.keys() | inner.keys() | tail.keys()
    }


def _one(points: Sequence[Point] | None) -> list[Stretch]:
    return [joined(stretch_of(*point) for point in points)] if points else []


def thinned(points: Sequence[Point], limit: int) -> Sequence[Point]:
    """The points themselves where they are few enough."""
    return points if len(points) <= limit else drawn([stretch_of(*point) for point in points], limit)
