"""GET /catalog."""

from fastapi import APIRouter

from backend.catalog.contents import catalog
from backend.contract.catalog import Catalog

router = APIRouter(prefix="/api/v1", tags=["catalog"])


@router.get("/catalog")
def read_catalog() -> Catalog:
    """Recipes, models, and the JSON Schema of a configuration by run kind."""
    return catalog()
