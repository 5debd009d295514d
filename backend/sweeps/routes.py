"""Routes of sweeps."""

from typing import Annotated

from fastapi import APIRouter, Header

from backend.contract import records as r
from backend.lifecycle import commands
from backend.services import PageAsked, RowId, ServicesDep, with_reserve
from backend.sweeps import creation, store
from backend.uploads import columns as uploads

router = APIRouter(prefix="/api/v1/sweeps", tags=["sweeps"])

Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


@router.post("", status_code=201)
def create_sweep(services: ServicesDep, body: r.SweepCreate, idempotency_key: Key = None) -> r.Sweep:
    """Store and queue several runs, all or none."""
    for index, run in enumerate(body.runs):  # reads files: not under the write lock
        with creation.naming(index):
            uploads.require_columns(services.settings.home, run.config)
    with services.database.write() as tx:
        return store.get(tx, creation.create(tx, body, idempotency_key, services.clock.stamp()))


@router.get("")
def list_sweeps(services: ServicesDep, query: PageAsked) -> r.Page[r.SweepSummary]:
    """Sweeps, newest first."""
    with services.database.read() as tx:
        return store.page(tx, query)


@router.get("/{sweep_id}")
def get_sweep(services: ServicesDep, sweep_id: RowId) -> r.Sweep:
    """One sweep with its runs."""
    with services.database.read() as tx:
        return store.get(tx, sweep_id)


@router.post("/{sweep_id}/stop")
@with_reserve
def stop_sweep(services: ServicesDep, sweep_id: RowId) -> r.Sweep:
    """Stop every run of it that has not ended; the others stay as they are."""
    with services.database.write() as tx:
        stopped = store.under_way(tx, sweep_id)
        for run_id in stopped:
            commands.command(tx, run_id, "stop", services.clock.stamp())
        answer = store.get(tx, sweep_id)
    for run_id in stopped:
        services.broadcast.ring(run_id)
    return answer
