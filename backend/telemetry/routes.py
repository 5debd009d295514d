"""Routes of metrics and logs."""

from typing import Annotated

from fastapi import APIRouter, Query

from backend.contract import records as r
from backend.errors import Invalid
from backend.field_errors import FieldError
from backend.parameters import RowId, RunIds, Step, run_ids
from backend.runs import store as runs
from backend.services import ServicesDep
from backend.telemetry import logs, metrics

router = APIRouter(prefix="/api/v1", tags=["telemetry"])

# Names, runs and headers fit into the 64 KiB of a request's head, also where each character takes twelve bytes there.
Names = Annotated[str | None, Query(max_length=4_000, description="Separated by commas; all where none is given.")]
MaxPoints = Annotated[int | None, Query(ge=4, le=100_000)]
Width = Annotated[int | None, Query(ge=1, le=2**20, description="Steps in a stretch, a power of two.")]


def _split(names: str | None) -> list[str]:
    return [name for name in (names or "").split(",") if name]


def _even(width: int | None) -> int | None:
    """The width. Raises Invalid for one whose stretches would not be made of whole narrower ones."""
    if width is not None and width & (width - 1):
        raise Invalid(FieldError("width", f"must be a power of two (got {width})"))
    return width


@router.get("/runs/{run_id}/metrics")
def run_metrics(
    services: ServicesDep,
    run_id: RowId,
    names: Names = None,
    after_step: Step = None,
    from_step: Step = None,
    to_step: Step = None,
    max_points: MaxPoints = None,
    width: Width = None,
) -> r.Metrics:
    """Live series of a run."""
    window = metrics.Window(_split(names), after_step, from_step, to_step, max_points, _even(width))
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return metrics.read(tx, run_id, window)


@router.get("/metrics")
def compare_metrics(
    services: ServicesDep,
    runs_: RunIds,
    names: Names = None,
    from_step: Step = None,
    to_step: Step = None,
    max_points: MaxPoints = None,
    width: Width = None,
) -> r.Page[r.Metrics]:
    """The same series of several runs."""
    wanted = run_ids(runs_)
    window = metrics.Window(_split(names), None, from_step, to_step, max_points, _even(width), runs=len(wanted))
    with services.database.read() as tx:
        for run_id in wanted:
            runs.require(tx, run_id)
        return r.Page[r.Metrics](items=[metrics.read(tx, run_id, window) for run_id in wanted])


@router.get("/runs/{run_id}/logs")
def run_logs(
    services: ServicesDep,
    run_id: RowId,
    after_id: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 500,
) -> r.Page[r.LogRecord]:
    """Log lines, oldest first."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        return logs.page(tx, run_id, after_id, limit)
