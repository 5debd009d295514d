"""What lists show of a run's metrics, kept on its row: the latest value of each, and a curve of the reward."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, RowMapping, select

from backend.contract.protocol import EVALUATION
from backend.storage.tables import attempt, metric
from backend.telemetry import history, metrics, sparkline

CURVE = "reward"

Summary = dict[str, float | None]


def extended(row: RowMapping, step: int, values: Mapping[str, float | None]) -> dict[str, Any]:
    """The row's columns `summary` and `sparkline` after one more report."""
    curve = sparkline.add(row["sparkline"], step, values[CURVE]) if CURVE in values else row["sparkline"]
    return {"summary": _with(row["summary"], values), "sparkline": curve}


def recomputed(tx: Connection, run_id: int) -> dict[str, Any]:
    """The same columns from the live metrics alone: what a resumed run starts with."""
    query = (
        select(metric.c.step, metric.c.name, metric.c.value)
        .join(attempt, history.of_attempt(metric))
        .where(metric.c.run_id == run_id, metrics.is_live())
        .order_by(metric.c.step, metric.c.attempt)
    )
    summary: Summary = {}
    curve = sparkline.empty()
    for step, name, value in tx.execute(query):
        summary = _with(summary, {name: value})
        if name == CURVE:
            curve = sparkline.add(curve, step, value)
    return {"summary": summary, "sparkline": curve}


def _with(summary: Summary, values: Mapping[str, float | None]) -> Summary:
    """The latest values, and of what was evaluated again the first, too."""
    again = (name for name in values if name.startswith(EVALUATION) and name in summary)
    firsts = {f"{name}:first": summary[name] for name in again}
    return {**firsts, **summary, **values}
