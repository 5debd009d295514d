"""The catalog, put together once."""

from functools import cache
from importlib.metadata import version

from backend.catalog.models import CARDS
from backend.contract.catalog import Catalog
from backend.contract.config import MODELS
from backend.contract.recipes import RECIPES


@cache
def catalog() -> Catalog:
    """Everything a form needs; the same for everybody as long as the backend runs."""
    return Catalog(
        version=version("groupscope"),
        recipes=list(RECIPES),
        models=list(CARDS),
        schemas={kind: model.model_json_schema() for kind, model in MODELS.items()},
    )
