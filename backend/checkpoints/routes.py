"""Routes of checkpoints."""

from fastapi import APIRouter

from backend.answers import Zip, file
from backend.checkpoints import files, store
from backend.contract import records as r
from backend.errors import NotFound
from backend.runs import store as runs
from backend.services import RowId, ServicesDep, StepNumber

router = APIRouter(prefix="/api/v1/runs/{run_id}/checkpoints", tags=["checkpoints"])


@router.get("")
def list_checkpoints(services: ServicesDep, run_id: RowId) -> r.Page[r.Checkpoint]:
    """Checkpoints of the live history, by step."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        rows = store.live(tx, run_id)
    return r.Page[r.Checkpoint](items=[r.Checkpoint.model_validate(dict(row)) for row in rows])


@router.get("/{step}/model.zip", response_class=Zip)
def download_model(services: ServicesDep, run_id: RowId, step: StepNumber) -> Zip:
    """The directory that `from_pretrained` opens, as a zip."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        row = store.live_at(tx, run_id, step)
    if row is None:
        raise NotFound(f"Run {run_id} has no checkpoint at step {step}.")
    model = files.model_directory(services.settings.home, row)
    return file(Zip, f"run-{run_id}-step-{step}.zip", files.archive(model))
