"""What lists show of a run's metrics, kept on its row: the latest value of each, and a curve of the reward."""

from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, select

from backend.contract.protocol import EVALUATION
from backend.runs import curve as curves
from backend.storage import history
from backend.storage.tables import attempt, metric
from backend.telemetry import metrics

CURVE = "reward"

Summary = dict[str, float | None]


def extended(tx: Connection, row: Mapping[str, Any], step: int, values: Mapping[str, float | None]) -> dict[str, Any]:
    """The row's columns `summary` and `sparkline` after one more report, whose metrics are stored."""
    curve = curves.with_value(row["sparkline"], step, values[CURVE]) if CURVE in values else row["sparkline"]
    return {"summary": _with(_before(tx, row, step, values), values), "sparkline": curve}


def _before(tx: Connection, row: Mapping[str, Any], step: int, values: Mapping[str, float | None]) -> Summary:
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
        .where(history.in_segments(metric, history.segments(tx, run_id)), metrics.is_live())
        .order_by(metric.c.step, metric.c.attempt)
    )
    summary: Summary = {}
    curve = curves.empty()
    for step, rows in groupby(tx.execute(query), key=itemgetter(0)):
        values = {name: value for _, name, value in rows}  # the latest attempt's of each
        summary = _with(summary, values)
        if CURVE in values:
            curve = curves.with_value(curve, step, values[CURVE])
    return {"summary": summary, "sparkline": curve}


def _with(summary: Summary, values: Mapping[str, float | None]) -> Summary:
    """The latest values, and of what was evaluated again the first, too."""
    firsts = {f"{name}:first": summary[name] for name in _evaluated(values) if name in summary}
    return {**firsts, **summary, **values}


def _evaluated(values: Mapping[str, float | None]) -> list[str]:
    return [name for name in values if name.startswith(EVALUATION)]
