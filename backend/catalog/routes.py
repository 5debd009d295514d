"""GET /catalog: everything a form needs."""

from functools import cache
from importlib.metadata import version

from fastapi import APIRouter

from backend.catalog.models import CARDS
from backend.contract.catalog import Catalog
from backend.contract.config import MODELS
from backend.contract.recipes import RECIPES

router = APIRouter(prefix="/api/v1", tags=["catalog"])


@router.get("/catalog")
def read_catalog() -> Catalog:
    """Recipes, models, and the JSON Schema of a configuration by run kind."""
    return catalog()


@cache
def catalog() -> Catalog:
    """The same for everybody as long as the backend runs, and put together once."""
    return Catalog(
        version=version("groupscope"),
        recipes=list(RECIPES),
        models=list(CARDS),
        schemas={kind: model.model_json_schema() for kind, model in MODELS.items()},
    )
