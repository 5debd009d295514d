"""Routes of what is taken away."""

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from backend.export import lines, tables
from backend.parameters import RowId
from backend.services import ServicesDep

router = APIRouter(prefix="/api/v1", tags=["export"])

PARQUET = "application/vnd.apache.parquet"


@router.get("/runs/{run_id}/export")
def export_run(services: ServicesDep, run_id: RowId) -> StreamingResponse:
    """The run, its metrics and its groups as JSON lines."""
    return _file(f"run-{run_id}.jsonl", "application/x-ndjson", lines.lines(services.database, run_id))


@router.get("/runs/{run_id}/export/groups.parquet")
def export_groups(services: ServicesDep, run_id: RowId) -> StreamingResponse:
    """Every completion of the run, with its group."""
    return _file(f"run-{run_id}-groups.parquet", PARQUET, tables.groups_table(services.database, run_id))


@router.get("/runs/{run_id}/export/metrics.parquet")
def export_metrics(services: ServicesDep, run_id: RowId) -> StreamingResponse:
    """Every value of every metric of the run."""
    return _file(f"run-{run_id}-metrics.parquet", PARQUET, tables.metrics_table(services.database, run_id))


def _file(name: str, media_type: str, chunks: lines.Chunks) -> StreamingResponse:
    return StreamingResponse(
        chunks, media_type=media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )
