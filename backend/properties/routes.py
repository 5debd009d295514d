"""The route of what the reward pays for. The window is read in one transaction, and looked at outside of it."""

from typing import Annotated

from fastapi import APIRouter, Query

from backend.contract.properties import PaidFor
from backend.contract.queries import PropertyQuery
from backend.properties import window
from backend.properties.page import page
from backend.runs import store as runs
from backend.services import RowId, ServicesDep

router = APIRouter(prefix="/api/v1", tags=["properties"])


@router.get("/runs/{run_id}/properties")
def run_properties(services: ServicesDep, run_id: RowId, query: Annotated[PropertyQuery, Query()]) -> PaidFor:
    """Which properties of completions go with the reward, within groups."""
    with services.database.read() as tx:
        runs.require(tx, run_id)
        seen = window.read(tx, run_id, query)
    return page(run_id, seen, query.reward)
