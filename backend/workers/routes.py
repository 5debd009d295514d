"""The route of workers."""

from fastapi import APIRouter

from backend.contract import records as r
from backend.services import ServicesDep
from backend.workers import store

router = APIRouter(prefix="/api/v1/workers", tags=["workers"])


@router.get("")
def list_workers(services: ServicesDep) -> r.Page[r.Worker]:
    """Every worker heard of in the last day."""
    with services.database.read() as tx:
        workers = store.recent(tx, services.clock.seconds(), silence=services.settings.lease_seconds)
    return r.Page[r.Worker](items=workers)


@router.get("/use")
def list_use(services: ServicesDep) -> r.Page[r.Held]:
    """What every worker held in the last day, the latest first."""
    with services.database.read() as tx:
        return r.Page[r.Held](items=store.use(tx, services.clock.stamp()))
