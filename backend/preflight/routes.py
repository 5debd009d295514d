"""POST /runs/preflight."""

from fastapi import APIRouter

from backend.contract.base import Frozen, Json
from backend.contract.preflight import Preflight
from backend.preflight.gather import gather
from backend.preflight.preflight import parse, preflight
from backend.services import ServicesDep

router = APIRouter(prefix="/api/v1/runs", tags=["runs"])


class PreflightRequest(Frozen):
    """Any JSON object: saying what is wrong with it is the purpose."""

    config: dict[str, Json]


@router.post("/preflight")
def check_run(services: ServicesDep, body: PreflightRequest) -> Preflight:
    """What a configuration would do, and what is wrong with it; no run is made."""
    config = parse(body.config)
    if isinstance(config, Preflight):
        return config
    with services.database.read() as tx:
        silence = services.settings.lease_seconds
        facts = gather(tx, services.settings.home, config, now=services.clock.seconds(), silence=silence)
    return preflight(config, facts)
