"""What lists show of a run's metrics, kept on its row: the latest value of each, and a curve of the reward.

The curve has at most 40 points and grows with the run: each is the mean of a stretch of steps. When the stretches run out,
neighbours are merged and the stretches double; so a point costs the same at step 10 and at step 100,000, and the state fits
into the run's row.
"""

from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, TypedDict

from sqlalchemy import Connection, RowMapping, select

from backend.contract.protocol import EVALUATION
from backend.storage.tables import attempt, metric
from backend.telemetry import history, metrics

POINTS = 40
Mean = list[float]  # the mean of a stretch, and of how many values
CURVE = "reward"

Summary = dict[str, float | None]


def extended(tx: Connection, row: RowMapping, step: int, values: Mapping[str, float | None]) -> dict[str, Any]:
    """The row's columns `summary` and `sparkline` after one more report, whose metrics are stored."""
    curve = with_value(row["sparkline"], step, values[CURVE]) if CURVE in values else row["sparkline"]
    return {"summary": _with(_before(tx, row, step, values), values), "sparkline": curve}


def _before(tx: Connection, row: RowMapping, step: int, values: Mapping[str, float | None]) -> Summary:
    """The summary without evaluations that a resumed run makes again at its first step: the later one replaces the earlier."""
    summary: Summary = row["summary"]
    once = [name for name in _evaluated(values) if name in summary and f"{name}:first" not in summary]
    if not once:
        return summary
    earlier = (
        select(metric.c.name)
        .join(attempt, history.of_attempt(metric))
        .where(metric.c.run_id == row["id"], metric.c.name.in_(once), metric.c.step < step, metrics.is_live())
    )
    replaced = set(once) - set(tx.execute(earlier).scalars())
    return {name: value for name, value in summary.items() if name not in replaced}


def recomputed(tx: Connection, run_id: int) -> dict[str, Any]:
    """The same columns from the live metrics alone: what a resumed run starts with."""
    query = (
        select(metric.c.step, metric.c.name, metric.c.value)
        .join(attempt, history.of_attempt(metric))
        .where(metric.c.run_id == run_id, metrics.is_live())
        .order_by(metric.c.step, metric.c.attempt)
    )
    summary: Summary = {}
    curve = no_curve()
    for step, rows in groupby(tx.execute(query), key=itemgetter(0)):
        values = {name: value for _, name, value in rows}  # the latest attempt's of each
        summary = _with(summary, values)
        if CURVE in values:
            curve = with_value(curve, step, values[CURVE])
    return {"summary": summary, "sparkline": curve}


def _with(summary: Summary, values: Mapping[str, float | None]) -> Summary:
    """The latest values, and of what was evaluated again the first, too."""
    firsts = {f"{name}:first": summary[name] for name in _evaluated(values) if name in summary}
    return {**firsts, **summary, **values}


def _evaluated(values: Mapping[str, float | None]) -> list[str]:
    return [name for name in values if name.startswith(EVALUATION)]


class Curve(TypedDict):
    """A point for each stretch of `stride` steps. What was stored by earlier versions has `buckets` instead: sum and count."""

    stride: int
    means: list[Mean]


def no_curve() -> Curve:
    """No point yet."""
    return {"stride": 1, "means": []}


def with_value(state: Curve, step: int, value: float | None) -> Curve:
    """The state with one more value; None (not finite) leaves a gap if nothing else falls into its stretch."""
    stride, means = state["stride"], list(_means(state))
    while step // stride >= POINTS:
        stride *= 2
        if len(means) % 2:
            means.append([0.0, 0])
        means = [_joined(*pair) for pair in zip(means[::2], means[1::2], strict=True)]
    index = step // stride
    means.extend([0.0, 0] for _ in range(index + 1 - len(means)))
    if value is not None:
        means[index] = _joined(means[index], [value, 1])
    return {"stride": stride, "means": means}


def curve_points(state: Curve) -> list[float | None]:
    """The means; None for a stretch without a finite value."""
    return [mean if count else None for mean, count in _means(state)]


def _means(state: Curve) -> list[Mean]:
    old: list[Mean] = state.get("buckets", [])  # type: ignore[assignment]  # a key that is no longer written
    return state.get("means") or [[total / count if count else 0.0, count] for total, count in old]


def _joined(left: Mean, right: Mean) -> Mean:
    """Both stretches as one; not by way of their sum, which may be infinite though the mean is not."""
    if not left[1] or not right[1]:
        return left if left[1] else right
    count = left[1] + right[1]
    mean = left[0] * (left[1] / count) + right[0] * (right[1] / count)
    low, high = sorted((left[0], right[0]))
    return [min(max(mean, low), high), count]  # the mean of equal values is that value, whatever was rounded
