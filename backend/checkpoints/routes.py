"""Routes of checkpoints."""

from fastapi import APIRouter

from backend.checkpoints import store
from backend.contract import records as r
from backend.runs import store as runs
from backend.runs.routes import RunId
from backend.services import ServicesDep

router = APIRouter(prefix="/api/v1/runs/{run_id}/checkpoints", tags=["checkpoints"])


@router.get("")
def list_checkpoints(services: ServicesDep, run_id: RunId) -> r.Page[r.Checkpoint]:
    """Checkpoints of the live history, by step."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        rows = store.live(tx, run_id)
    return r.Page[r.Checkpoint](items=[r.Checkpoint.model_validate(dict(row)) for row in rows])
