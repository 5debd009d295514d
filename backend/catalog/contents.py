"""The catalog, put together once."""

from functools import cache
from importlib.metadata import version

from backend.catalog.models import CARDS
from backend.contract.grpo import GrpoConfig
from backend.contract.recipes import RECIPES
from backend.contract.records import Catalog
from backend.contract.sample import SampleConfig


@cache
def catalog() -> Catalog:
    """Everything a form needs; the same for everybody as long as the backend runs."""
    return Catalog(
        version=version("groupscope"),
        recipes=list(RECIPES),
        models=list(CARDS),
        schemas={"grpo": GrpoConfig.model_json_schema(), "sample": SampleConfig.model_json_schema()},
    )
