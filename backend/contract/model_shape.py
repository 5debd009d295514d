"""The dimensions of a language model, from which its size and the memory that it needs follow."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from backend.contract.base import Record

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
