"""What a form offers (recipes, models, the JSON Schema of a configuration), and the shapes that memory estimates rest on."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

from fastapi import APIRouter

from backend.contract.catalog import Catalog, ModelCard
from backend.contract.config import MODELS
from backend.contract.model_shape import ModelShape
from backend.contract.recipes import RECIPES, SMOLLM2

TINY_ARITHMETIC = "builtin:tiny-arithmetic"

SHAPES: Mapping[str, ModelShape] = {
    TINY_ARITHMETIC: ModelShape(
        hidden=128, layers=4, heads=4, kv_heads=4, head_dim=32, intermediate=384, vocabulary=271, context=512
    ),
    SMOLLM2: ModelShape(
        hidden=576, layers=30, heads=9, kv_heads=3, head_dim=64, intermediate=1536, vocabulary=49_152, context=8192
    ),
}

CARDS: tuple[ModelCard, ...] = (
    ModelCard(
        source=TINY_ARITHMETIC,
        title="Tiny arithmetic",
        sentence="0.9 million parameters, made for the arithmetic task: right about half the time before training, "
        "so that every group has something to teach. Trains in minutes on any machine.",
    ),
    ModelCard(
        source=SMOLLM2,
        title="SmolLM2 135M Instruct",
        sentence="A real pretrained chat model of 135 million parameters (Hugging Face, Apache-2.0). Trains on a laptop's "
        "CPU, faster on a GPU.",
    ),
)

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
