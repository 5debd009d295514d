"""What a form offers (recipes, models, the JSON Schema of a configuration), and the shapes that memory estimates rest on."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

from fastapi import APIRouter

from backend.contract.catalog import Catalog, ModelCard
from backend.contract.config import MODELS
from backend.contract.recipes import RECIPES, SMOLLM2

TINY_ARITHMETIC = "builtin:tiny-arithmetic"


@dataclass(frozen=True)
class ModelShape:
    """The dimensions of a Llama-architecture model whose head shares the embedding's weights."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    context: int

    @property
    def linear(self) -> Mapping[str, tuple[int, int]]:
        """The linear layers of one block, as (inputs, outputs) by name."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "q_proj": (self.hidden, queries),
            "k_proj": (self.hidden, keys),
            "v_proj": (self.hidden, keys),
            "o_proj": (queries, self.hidden),
            "gate_proj": (self.hidden, self.intermediate),
            "up_proj": (self.hidden, self.intermediate),
            "down_proj": (self.intermediate, self.hidden),
        }

    @property
    def parameters(self) -> int:
        """How many there are: embedding, blocks with two norms each, and the last norm."""
        block = sum(inputs * outputs for inputs, outputs in self.linear.values()) + 2 * self.hidden
        return self.vocabulary * self.hidden + self.layers * block + self.hidden


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
