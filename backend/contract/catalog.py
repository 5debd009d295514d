"""What a form offers: recipes, models, and the schemas of the configurations."""

from backend.contract.base import Json, Record


class RecipeCard(Record):
    """A named starting point: choices along the axes of an algorithm, with their source."""

    id: str
    title: str
    sentence: str
    when: str
    source: str
    formula: str  # LaTeX
    family: str = ""
    config: dict[str, Json]


class ModelCard(Record):
    """A model that can be named by its source."""

    source: str
    title: str
    sentence: str


class Catalog(Record):
    """Everything a form needs."""

    version: str
    recipes: list[RecipeCard]
    models: list[ModelCard]
    schemas: dict[str, dict[str, Json]]  # JSON Schema by run kind
