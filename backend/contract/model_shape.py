"""The dimensions of a language model, from which its size and the memory that it needs follow; and how its config.json says them."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, ValidationError

from backend.contract.base import Json, Record

_TIED: Mapping[str, Json] = {"tie_word_embeddings": True}
_LEFT_OUT: Mapping[str, Mapping[str, Json]] = {
    "llama": {},
    "mistral": {"num_key_value_heads": 8},
    "qwen2": {"num_key_value_heads": 32},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128},
    "smollm3": {"num_key_value_heads": 4, **_TIED},
    "gemma": {"num_key_value_heads": 16, "head_dim": 256, **_TIED},
    "gemma2": {"num_key_value_heads": 4, "head_dim": 256, **_TIED},
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
        **_TIED,
    },
    "granite": {},
    "olmo2": {},
}
"""By architecture, what transformers takes for a field that a config.json may leave out."""
COUNTED = frozenset(_LEFT_OUT)
"""Architectures with the layers of Llama: what `ModelShape` counts of them is what there is, but for biases and small norms."""
_NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")

Dimension = Annotated[int, Field(ge=1, le=2**26)]


class ModelShape(Record):
    """The dimensions of a model of Llama's architecture, or of one that has the same layers."""

    hidden: Dimension
    layers: Dimension
    heads: Dimension
    kv_heads: Dimension
    head_dim: Dimension
    intermediate: Dimension
    vocabulary: Dimension
    context: Dimension
    tied: bool = True  # the output layer shares the embedding's weights

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
    def blocks(self) -> int:
        """Parameters between the embedding and the output layer: blocks with two norms each, and the last norm."""
        block = sum(inputs * outputs for inputs, outputs in self.linear.values()) + 2 * self.hidden
        return self.layers * block + self.hidden

    @property
    def head(self) -> int:
        """Parameters of the output layer."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """How many there are in all."""
        return self.blocks + self.head * (1 if self.tied else 2)


def shape_in(config: Mapping[str, Json]) -> ModelShape:
    """The dimensions that a config.json says; of an architecture that is not `COUNTED`, as if its layers were Llama's.

    Raises ValueError, with a sentence for the person who gave it, if the layers are others or something is missing.
    """
    kind = str(config.get("model_type") or "")[:60]
    if not kind:
        raise ValueError("it has no model_type: give the config.json that lies beside a model's weights")
    if experts := next((name for name in config if "expert" in name and config[name]), None):
        raise ValueError(f"{kind} has experts ({experts}), whose memory is not counted here")
    if config.get("text_config"):
        text = f"{kind} has other parts than a language model (text_config), whose memory is not counted here"
        raise ValueError(text)
    said = dict(_LEFT_OUT.get(kind, {})) | {name: value for name, value in config.items() if value is not None}
    if missing := [name for name in _NEEDED if name not in said]:
        text = f"{kind} has other layers than Llama's, which are not counted here: its config.json lacks {missing[0]}"
        raise ValueError(text)
    heads, hidden = said["num_attention_heads"], said["hidden_size"]
    each = hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 else None
    try:
        return ModelShape.model_validate(
            {
                "hidden": hidden,
                "layers": said["num_hidden_layers"],
                "heads": heads,
                "kv_heads": said.get("num_key_value_heads", heads),
                "head_dim": said.get("head_dim", each),
                "intermediate": said["intermediate_size"],
                "vocabulary": said["vocab_size"],
                "context": said.get("max_position_embeddings", 2048),
                "tied": said.get("tie_word_embeddings", False),
            }
        )
    except ValidationError as error:
        wrong = error.errors()[0]
        raise ValueError(f"{kind}: {'.'.join(map(str, wrong['loc']))} cannot be {wrong['input']!r:.40}") from error
