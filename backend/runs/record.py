"""A row of the run table as the contract's Run."""

from typing import Any

from sqlalchemy import RowMapping

from backend.contract import records as r
from backend.telemetry import sparkline


def run_from_row(row: RowMapping, queue_position: int | None) -> r.Run:
    """The run as lists and pages show it; the stored configuration is passed on unread."""
    values: dict[str, Any] = dict(row)
    progress = r.Progress(
        step=values["step"],
        total_steps=values["total_steps"],
        eta_seconds=values["eta_seconds"],
        phase=values["phase"],
        done=values["phase_done"],
        total=values["phase_total"],
    )
    points = sparkline.points(values.pop("sparkline"))
    return r.Run.model_validate(
        values | {"progress": progress, "queue_position": queue_position, "reward_sparkline": points}
    )
