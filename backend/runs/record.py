"""A row of the run table as the contract's Run."""

from typing import Any

from sqlalchemy import RowMapping

from backend.contract import records as r
from backend.telemetry import summary


def run_from_row(row: RowMapping, queue_position: int | None) -> r.Run:
    """The run as lists and pages show it; the stored configuration is passed on unread."""
    values: dict[str, Any] = dict(row)
    progress = progress_from_row(row)
    points = summary.curve_points(values.pop("sparkline"))
    if row["started_at"] and row["finished_at"]:  # the wall clock may have been set back between the two
        values["finished_at"] = max(row["started_at"], row["finished_at"])
    return r.Run.model_validate(
        values | {"progress": progress, "queue_position": queue_position, "reward_sparkline": points}
    )


def progress_from_row(row: RowMapping) -> r.Progress:
    """How far the run of a row is."""
    return r.Progress(
        step=row["step"],
        total_steps=row["total_steps"],
        eta_seconds=row["eta_seconds"],
        phase=row["phase"],
        done=row["phase_done"],
        total=row["phase_total"],
    )
