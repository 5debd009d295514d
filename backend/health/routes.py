"""The route of hints."""

from fastapi import APIRouter

from backend.contract.health import Health
from backend.health.check import check
from backend.health.gather import facts_of
from backend.services import RowId, ServicesDep

router = APIRouter(prefix="/api/v1", tags=["health"])


@router.get("/runs/{run_id}/health")
def run_health(services: ServicesDep, run_id: RowId) -> Health:
    """What looks unusual in a run, each with its rule, its numbers and where to look."""
    with services.database.read() as tx:
        facts = facts_of(tx, run_id, services.terms())
    return check(facts)
