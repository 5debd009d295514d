"""The sizes of a decoder-only model that its operations are counted from."""

from pydantic import BaseModel


class Matrix(BaseModel):
    """One weight matrix of each layer, and how often a layer has it."""

    outputs: int
    inputs: int
    count: int = 1

    @property
    def name(self) -> str:
        """What its measured rates are kept under."""
        return f"{self.outputs}x{self.inputs}"


class Shape(BaseModel):
    """A Llama-like model: attention with grouped keys and values, a gated feed-forward part, an output layer."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    parameters: int  # trained ones: all of them, where no adapters are

    @property
    def layer_matrices(self) -> list[Matrix]:
        """Those that every token passes through: queries and output, keys and values, gate and up, down."""
        wide = self.heads * self.head_dim
        return [
            Matrix(outputs=wide, inputs=self.hidden),
            Matrix(outputs=self.hidden, inputs=wide),
            Matrix(outputs=self.kv_heads * self.head_dim, inputs=self.hidden, count=2),
            Matrix(outputs=self.intermediate, inputs=self.hidden, count=2),
            Matrix(outputs=self.hidden, inputs=self.intermediate),
        ]

    @property
    def head_matrix(self) -> Matrix:
        """The one that gives logits: only tokens whose successor is drawn or scored pass through it."""
        return Matrix(outputs=self.vocabulary, inputs=self.hidden)

    def attention_operations(self, contexts: int) -> int:
        """Of all layers, for queries that look at so many keys in sum: two products, a multiplication and an addition each."""
        return 4 * self.layers * self.heads * self.head_dim * contexts

    def cache_values(self, tokens: int) -> int:
        """Numbers in the keys and values of so many tokens."""
        return 2 * self.layers * self.kv_heads * self.head_dim * tokens
