"""Metrics in long format: stored by report, read as live series, thinned for charts to the mean and the extremes of each stretch."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, case, select

from backend.contract import records as r
from backend.contract.queries import MetricQuery
from backend.storage import history
from backend.storage.history import LAST, Segment
from backend.storage.statements import upsert
from backend.storage.tables import METRIC_WIDTHS, attempt, metric, run
from backend.telemetry import stretches
from backend.telemetry.stretches import Point, fitting_width, in_stretches, plain, stretch_of

T = TypeVar("T")
ROWS = 16_000  # read in about 60 ms; the charts of a page are far from it, all metrics of a run are not
VALUES = 500_000  # in one answer, over all its series and runs: some 10 MB; an export has every value


def store(
    tx: Connection, run_id: int, attempt_: int, of_steps: Sequence[tuple[int, Mapping[str, float | None]]]
) -> None:
    """Add the values of some steps; the same metric at the same step again replaces it."""
    rows = [
        {"run_id": run_id, "name": name, "step": step, "attempt": attempt_, "value": value}
        for step, values in of_steps
        for name, value in values.items()
    ]
    if rows:
        upsert(tx, metric, rows)
        stretches.add(tx, run_id, of_steps)


def names_at(tx: Connection, run_id: int, step: int) -> set[str]:
    """Which live metrics a step of a run has."""
    query = select(metric.c.name).join(attempt, history.of_attempt(metric))
    return set(tx.execute(query.where(metric.c.run_id == run_id, metric.c.step == step, is_live())).scalars())


def is_live() -> ColumnElement[bool]:
    """Evaluations are states, the rest belongs to steps; in a query joined to the attempt."""
    return case((history.is_evaluation(), history.live_state(metric.c.step)), else_=history.live(metric.c.step))


def read(tx: Connection, run_id: int, query: MetricQuery, *, runs: int = 1) -> r.Metrics:
    """The live series of a run, by name; thinned as the query says, and then mostly from roll-ups. `runs` share the work."""
    low = max(query.from_step or 0, 0 if query.after_step is None else query.after_step + 1)
    high = LAST if query.to_step is None else query.to_step
    latest = select(run.c.summary).where(run.c.id == run_id)  # the run's row keeps the latest value of each metric
    names = query.names or list(tx.execute(latest).scalar_one_or_none() or ())
    parts, count = history.within(tx, run_id, low, high), len(names) * runs
    bound = max(4, VALUES // count) if count else VALUES
    most = bound if query.max_points is None else min(query.max_points, bound)  # points of each series
    extents = stretches.extents(tx, parts, names)
    newest = max((extent.last_step for extent in extents.values()), default=0)
    by_width: dict[int, list[str]] = defaultdict(list)
    for name in names:
        by_width[_width(extents.get(name), low, high, query, most, count)].append(name)
    series: dict[str, r.Series] = {}
    for width, group in by_width.items():
        source = _source(width)
        if source == 1:
            for name, points in _joined(_raw(tx, part, group) for part in parts).items():
                own = width  # evaluations have no roll-ups: if there are too many, their width is found here
                if width == 1 and len(points) > most:
                    own = fitting_width(points[0][0], points[-1][0], most)
                each = (stretch_of(*point) for point in points)
                series[name] = plain(points) if own == 1 else in_stretches(each, own, low)
        else:
            end = newest - newest % source + source - 1  # of the last stretch
            last = high if high < newest else end
            found = _joined(_stretches(tx, part._replace(last=min(part.last, last)), group, source) for part in parts)
            series |= {name: in_stretches(each, width, low) for name, each in found.items()}
    return r.Metrics(run_id=run_id, series={name: series[name] for name in sorted(series)})


def _raw(tx: Connection, part: Segment, names: Collection[str]) -> dict[str, list[Point]]:
    """Every live point of some series in a part of a run's history."""
    query = (
        select(metric.c.name, metric.c.step, metric.c.value)
        .join(attempt, history.of_attempt(metric))
        .where(metric.c.run_id == part.run_id, is_live(), metric.c.step >= part.first, metric.c.step <= part.last)
        .where(metric.c.name.in_(names))
        .order_by(metric.c.name, metric.c.step, metric.c.attempt)
    )
    rows = groupby(tx.execute(query).all(), key=itemgetter(0))  # one by one they would take twice as long
    return {name: list({step: value for _, step, value in of_name}.items()) for name, of_name in rows}


def _width(extent: stretches.Extent | None, low: int, high: int, query: MetricQuery, most: int, series: int) -> int:
    """Of the stretches to answer; 1: the values themselves. Where much is read, only widths that are stored."""
    if extent is None:
        return 1
    first, last = max(low, extent.first_step), min(high, extent.last_step)
    values, wanted = min(last - first + 1, extent.values), query.width or 1
    if query.max_points is None and values <= most * _source(wanted):
        return wanted
    if values <= most:
        return 1
    if 2 * most * series <= ROWS:
        return fitting_width(first, last, most)
    return fitting_width(first, last, max(1, min(most, ROWS // series)), smallest=METRIC_WIDTHS[0], factor=4)


def _source(width: int) -> int:
    """Of which stored stretches those of a width are made; 1: of the values."""
    return max((one for one in METRIC_WIDTHS if one <= width), default=1)


def _joined(parts: Iterable[Mapping[str, list[T]]]) -> dict[str, list[T]]:
    """The series of several parts of a history, one behind the other."""
    whole: dict[str, list[T]] = defaultdict(list)
    for part in parts:
        for name, values in part.items():
            whole[name] += values
    return whole


def _stretches(tx: Connection, part: Segment, names: Collection[str], width: int) -> dict[str, list[tuple[Any, ...]]]:
    """What covers a part of a history: whole stretches, and at an end that lies within one, each value by itself."""
    low, high = part.first, part.last
    start, stop = -(-low // width) * width, (high + 1) // width * width
    inner = stretches.read(tx, part.run_id, names, width, start, stop)
    head = _raw(tx, part._replace(last=min(start - 1, high)), names) if low < start else {}
    tail = _raw(tx, part._replace(first=max(start, stop)), names) if max(start, stop) <= high else {}
    ends: list[dict[str, list[tuple[Any, ...]]]] = [
        {name: [stretch_of(*point) for point in points] for name, points in end.items()} for end in (head, tail)
    ]
    return _joined([ends[0], inner, ends[1]])
