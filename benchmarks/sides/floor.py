"""The floor of a step: for each phase, operations over the rate of matrix products, or bytes over bandwidth.

Counted from the model's shape and from the tokens of a real step, as the best algorithm needs them: each prompt once for
its group, rows that ended left out, nothing padded and nothing computed twice (recomputed activations would not count).
"""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from pydantic import BaseModel
from torch import Tensor
from transformers import PreTrainedConfig

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
ACCELERATOR_ROWS = (*ROWS, 2048, 4096, 8192)
PYTORCH, FASTEST = "F.linear", "fastest"
FORWARD_AND_BACKWARD = 3  # the gradients of a product's two factors cost one product each
# Numbers moved for each parameter in an update: the weight in both passes, its gradient written; then AdamW with a clipped
# norm reads the gradient twice, reads the weight and two moments, and writes those three.
UPDATE_NUMBERS = 3 + 2 + 3 + 3

SECONDS, _TIMES = 0.1, 5  # each point of the table is measured at least this long, and this often
_MOST = 1000  # times; a small product's median is settled long before its time is up
_CALLS = 20
_BANDWIDTH_BYTES = 2**29

Product = Callable[[Tensor, Tensor], Tensor]
Seconds = dict[str, dict[int, float]]  # matrix name → rows → seconds of one product


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
    parameters: int  # the trained ones: all of them without adapters

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
        """Of all layers, for queries that look at this number of keys in sum: two products, a multiplication and an addition each."""
        return 4 * self.layers * self.heads * self.head_dim * contexts

    def cache_values(self, tokens: int) -> int:
        """Numbers in the keys and values of this number of tokens."""
        return 2 * self.layers * self.kv_heads * self.head_dim * tokens


class Rates(BaseModel):
    """What was measured in one process. `seconds` has a table for each way to multiply that torch offers here."""

    seconds: dict[str, Seconds]
    bandwidth: float  # bytes a second, the faster of reading and copying

    def of(self, way: str, matrix: Matrix, rows: float) -> float:
        """Seconds of one product at any number of rows: on the straight line between two measured points.

        Above the largest point the rate is that point's.
        """
        table = self.seconds[way][matrix.name]
        most = max(table)
        if rows >= most:
            return table[most] * rows / most
        above = min(point for point in table if point >= rows)
        below = max((point for point in table if point < rows), default=above)
        share = 0.0 if above == below else (rows - below) / (above - below)
        return table[below] + share * (table[above] - table[below])

    def fastest(self) -> "Rates":
        """For each matrix and row count the fastest way: a table of one way, named FASTEST."""
        ways = list(self.seconds.values())
        best = {name: {rows: min(way[name][rows] for way in ways) for rows in ways[0][name]} for name in ways[0]}
        return Rates(seconds={FASTEST: best}, bandwidth=self.bandwidth)


@dataclass(frozen=True)
class Tokens:
    """A step's tokens: the length of each prompt, and of each completion (R, in the order of the groups)."""

    prompts_P: Sequence[int]
    completions_R: Sequence[int]

    @property
    def group_size(self) -> int:
        return len(self.completions_R) // len(self.prompts_P)

    @property
    def sampled(self) -> int:
        """Sampled tokens in all."""
        return sum(self.completions_R)

    def prompt_of(self, row: int) -> int:
        """The length of a completion's prompt."""
        return self.prompts_P[row // self.group_size]

    def unfinished(self) -> list[int]:
        """Rows that are fed a token, position by position: the first token comes from the prompt, the last is never fed."""
        longest = max(self.completions_R)
        return [sum(length > position for length in self.completions_R) for position in range(1, longest)]


@dataclass(frozen=True)
class Phase:
    """What a phase needs: matrix products (as operations and as seconds), further operations, and bytes."""

    operations: float
    matrix_operations: float
    matrix_seconds: float
    bytes_moved: float
    bandwidth: float

    @property
    def rate(self) -> float:
        """Operations a second of the matrix products at this phase's row counts."""
        return self.matrix_operations / self.matrix_seconds

    @property
    def seconds(self) -> float:
        """The phase's floor: all of its operations at that rate, or its bytes, whichever takes longer."""
        return max(self.operations / self.rate, self.bytes_moved / self.bandwidth)


def floor_of(shape: Shape, tokens: Tokens, rates: Rates, *, reference: bool, value_bytes: int = 4) -> dict[str, Phase]:
    """The phases of a step by name; rates of one way to multiply. `value_bytes` is the size of a number."""
    counted = _Counter(shape, rates, value_bytes)
    weights = shape.parameters
    phases = {
        "prefill": counted.phase([sum(tokens.prompts_P)], [len(tokens.prompts_P)], _prompt_contexts(tokens), weights)
    }
    if max(tokens.completions_R) > 1:
        phases["decode"] = _decode(counted, tokens)
    # The last token of a completion is scored, and never fed.
    fed = sum(tokens.prompts_P) + tokens.sampled - len(tokens.completions_R)
    contexts = _prompt_contexts(tokens) + _completion_contexts(tokens)
    if reference:
        phases["reference"] = counted.phase([fed], [tokens.sampled], contexts, weights)
    update = counted.phase([fed], [tokens.sampled], contexts, 0)
    phases["update"] = Phase(
        FORWARD_AND_BACKWARD * update.operations,
        FORWARD_AND_BACKWARD * update.matrix_operations,
        FORWARD_AND_BACKWARD * update.matrix_seconds,
        UPDATE_NUMBERS * weights * 4,  # master weights, gradients and moments are float32 everywhere
        update.bandwidth,
    )
    return phases


def _decode(counted: "_Counter", tokens: Tokens) -> Phase:
    """One pass for each position: all weights are read, and the keys and values of the unfinished rows."""
    rows = tokens.unfinished()
    shape = counted.shape
    # A group's prompt can be read once for all its rows; what a row has sampled is its own.
    kept = sum(
        shape.cache_values(tokens.prompt_of(row)) / tokens.group_size * (length - 1)
        + shape.cache_values(length * (length - 1) // 2)
        for row, length in enumerate(tokens.completions_R)
    )
    return counted.phase(rows, rows, _completion_contexts(tokens), shape.parameters * len(rows) + kept)


def _prompt_contexts(tokens: Tokens) -> int:
    """Keys that the prompts' tokens look at, in sum."""
    return sum(length * (length + 1) // 2 for length in tokens.prompts_P)


def _completion_contexts(tokens: Tokens) -> int:
    """Keys that the completions' tokens look at, but for each one's last, in sum."""
    return sum(
        (length - 1) * tokens.prompt_of(row) + length * (length - 1) // 2
        for row, length in enumerate(tokens.completions_R)
    )


@dataclass(frozen=True)
class _Counter:
    shape: Shape
    rates: Rates
    value_bytes: int

    def phase(self, rows: Sequence[int], head_rows: Sequence[int], contexts: int, values: float) -> Phase:
        """Passes with these numbers of rows, of which `head_rows` reach the output layer; `values` are numbers read."""
        [way] = self.rates.seconds
        passes = [
            (matrix, count, self.shape.layers * matrix.count) for count in rows for matrix in self.shape.layer_matrices
        ]
        passes += [(self.shape.head_matrix, count, 1) for count in head_rows]
        products = sum(2 * matrix.outputs * matrix.inputs * count * times for matrix, count, times in passes)
        seconds = sum(self.rates.of(way, matrix, count) * times for matrix, count, times in passes)
        return Phase(
            products + self.shape.attention_operations(contexts),
            products,
            seconds,
            values * self.value_bytes,
            self.rates.bandwidth,
        )


def shape_of(config: PreTrainedConfig, parameters: Iterable[torch.nn.Parameter]) -> Shape:
    """The sizes from a model's configuration."""
    heads = int(config.num_attention_heads)
    return Shape(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        intermediate=config.intermediate_size,
        vocabulary=config.vocab_size,
        parameters=sum(parameter.numel() for parameter in parameters),
    )


@torch.no_grad()
def measure_rates(shape: Shape, *, device: torch.device, dtype: torch.dtype, at_least: float) -> Rates:
    """With matrices of the model's own shapes, each alone and so as near to the processor as it can be, for `at_least` seconds."""
    counts = ROWS if device.type == "cpu" else ACCELERATOR_ROWS
    matrices = {matrix.name: matrix for matrix in [*shape.layer_matrices, shape.head_matrix]}
    seconds: dict[str, Seconds] = {}
    for way, product in products(device).items():
        seconds[way] = {}
        for name, matrix in matrices.items():
            weight = torch.randn(matrix.outputs, matrix.inputs, device=device, dtype=dtype)
            seconds[way][name] = {
                rows: _median_seconds(
                    product, torch.randn(rows, matrix.inputs, device=device, dtype=dtype), weight, at_least
                )
                for rows in counts
            }
    return Rates(seconds=seconds, bandwidth=measure_bandwidth(device, at_least))


def products(device: torch.device) -> dict[str, Product]:
    """The ways to multiply with a weight matrix that torch can call here: PyTorch's own choice, and oneDNN directly."""
    ways: dict[str, Product] = {PYTORCH: torch.nn.functional.linear}
    if device.type == "cpu" and torch.backends.mkldnn.is_available():
        linear = torch.ops.mkldnn._linear_pointwise
        ways["oneDNN"] = lambda rows, weight: linear(rows, weight, None, "none", [], "")
    return ways


def measure_bandwidth(device: torch.device, at_least: float) -> float:
    """Bytes a second: the faster of reading a large array, and of copying it (which reads and writes)."""
    source = torch.ones(_BANDWIDTH_BYTES // 4, device=device)
    target = torch.empty_like(source)
    reading = _median_seconds(lambda one, _: one.sum(), source, source, at_least)
    copying = _median_seconds(lambda one, other: other.copy_(one), source, target, at_least)
    return max(_BANDWIDTH_BYTES / reading, 2 * _BANDWIDTH_BYTES / copying)


def _median_seconds(product: Product, left: Tensor, right: Tensor, at_least: float) -> float:
    """Of one call; on an accelerator, of many in a row, since starting one takes longer than computing a small one."""
    calls = 1 if left.device.type == "cpu" else _CALLS
    product(left, right)
    taken: list[float] = []
    while len(taken) < _TIMES or (sum(taken) < at_least and len(taken) < _MOST):
        synchronize(left.device)
        began = time.perf_counter()
        for _ in range(calls):
            product(left, right)
        synchronize(left.device)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) / calls


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
