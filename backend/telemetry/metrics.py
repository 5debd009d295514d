"""Metrics in long format: stored by report, read as live series, thinned for charts by the extremes of each stretch."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from sqlalchemy import ColumnElement, Connection, case, select

from backend.contract import records as r
from backend.contract.protocol import EVALUATION
from backend.storage.tables import attempt, metric
from backend.storage.upsert import upsert
from backend.telemetry import history

Point = tuple[int, float | None]


@dataclass(frozen=True)
class Window:
    """Which part of a series is wanted, and in how many points at most."""

    names: Collection[str] = ()
    after_step: int | None = None
    from_step: int | None = None
    to_step: int | None = None
    max_points: int | None = None


def store(tx: Connection, run_id: int, attempt_: int, step: int, values: Mapping[str, float | None]) -> None:
    """Add the values of one report; the same metric at the same step again replaces it."""
    rows = [
        {"run_id": run_id, "name": name, "step": step, "attempt": attempt_, "value": value}
        for name, value in values.items()
    ]
    if rows:
        upsert(tx, metric, rows)


def is_live() -> ColumnElement[bool]:
    """Evaluations are states, the rest belongs to steps; in a query joined to the attempt."""
    evaluation = metric.c.name.startswith(EVALUATION, autoescape=True)
    return case((evaluation, history.live_state(metric.c.step)), else_=history.live(metric.c.step))


def read(tx: Connection, run_id: int, window: Window) -> r.Metrics:
    """The live series of a run, by name."""
    query = (
        select(metric.c.name, metric.c.step, metric.c.value)
        .join(attempt, history.of_attempt(metric))
        .where(metric.c.run_id == run_id, is_live())
        .order_by(metric.c.name, metric.c.step, metric.c.attempt)
    )
    if window.names:
        query = query.where(metric.c.name.in_(window.names))
    if window.after_step is not None:
        query = query.where(metric.c.step > window.after_step)
    if window.from_step is not None:
        query = query.where(metric.c.step >= window.from_step)
    if window.to_step is not None:
        query = query.where(metric.c.step <= window.to_step)
    series = {}
    for name, rows in groupby(tx.execute(query), key=itemgetter(0)):
        by_step: dict[int, float | None] = {step: value for _, step, value in rows}
        points = thinned(list(by_step.items()), window.max_points)
        series[name] = r.Series(step=[step for step, _ in points], value=[value for _, value in points])
    return r.Metrics(run_id=run_id, series=series)


def thinned(points: list[Point], limit: int | None) -> list[Point]:
    """At most `limit` points (at least 4) that keep the first, the last, and the lowest and highest of each stretch."""
    if limit is None or len(points) <= limit:
        return points
    stretches = max(1, (limit - 2) // 2)
    inner = points[1:-1]
    kept = [points[0]]
    for number in range(stretches):
        stretch = inner[number * len(inner) // stretches : (number + 1) * len(inner) // stretches]
        kept.extend(_extremes(stretch))
    return [*kept, points[-1]]


def _extremes(stretch: list[Point]) -> list[Point]:
    finite = [(value, step) for step, value in stretch if value is not None]
    if not finite:
        return stretch[:1]
    ends = {min(finite), max(finite)}
    return sorted((step, value) for value, step in ends)
