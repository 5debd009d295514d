"""Routes of what is taken away."""

from fastapi import APIRouter

from backend.answers import Lines, Parquet, file
from backend.export import files
from backend.services import RowId, ServicesDep

router = APIRouter(prefix="/api/v1", tags=["export"])


@router.get("/runs/{run_id}/export", response_class=Lines)
def export_run(services: ServicesDep, run_id: RowId) -> Lines:
    """The run, its metrics and its groups as JSON lines."""
    return file(Lines, f"run-{run_id}.jsonl", files.lines(services.database, run_id))


@router.get("/runs/{run_id}/export/groups.parquet", response_class=Parquet)
def export_groups(services: ServicesDep, run_id: RowId) -> Parquet:
    """Every completion of the run, with its group."""
    return file(Parquet, f"run-{run_id}-groups.parquet", files.groups_table(services.database, run_id))


@router.get("/runs/{run_id}/export/metrics.parquet", response_class=Parquet)
def export_metrics(services: ServicesDep, run_id: RowId) -> Parquet:
    """Every value of every metric of the run."""
    return file(Parquet, f"run-{run_id}-metrics.parquet", files.metrics_table(services.database, run_id))
