"""Measures what `rates` holds, in the process that calls it."""

import statistics
import time
from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from floor.operations import ACCELERATOR_ROWS, PYTORCH, ROWS, Rates, Seconds, Shape

_SECONDS, _TIMES = 0.1, 5  # each point of the table is measured at least this long, and this often
_MOST = 1000  # times; a small product's median is settled long before its time is up
_CALLS = 20
_BANDWIDTH_BYTES = 2**29

Product = Callable[[Tensor, Tensor], Tensor]


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
def measure_rates(shape: Shape, *, device: torch.device, dtype: torch.dtype) -> Rates:
    """With matrices of the model's own shapes, each alone and so as near to the processor as it can be."""
    counts = ROWS if device.type == "cpu" else ACCELERATOR_ROWS
    matrices = {matrix.name: matrix for matrix in [*shape.layer_matrices, shape.head_matrix]}
    seconds: dict[str, Seconds] = {}
    for way, product in products(device).items():
        seconds[way] = {}
        for name, matrix in matrices.items():
            weight = torch.randn(matrix.outputs, matrix.inputs, device=device, dtype=dtype)
            seconds[way][name] = {
                rows: _median_seconds(product, torch.randn(rows, matrix.inputs, device=device, dtype=dtype), weight)
                for rows in counts
            }
    return Rates(seconds=seconds, bandwidth=measure_bandwidth(device))


def products(device: torch.device) -> dict[str, Product]:
    """The ways to multiply with a weight matrix that torch can call here: PyTorch's own choice, and oneDNN directly."""
    ways: dict[str, Product] = {PYTORCH: torch.nn.functional.linear}
    if device.type == "cpu" and torch.backends.mkldnn.is_available():
        linear = torch.ops.mkldnn._linear_pointwise
        ways["oneDNN"] = lambda rows, weight: linear(rows, weight, None, "none", [], "")
    return ways


def measure_bandwidth(device: torch.device) -> float:
    """Bytes a second: the faster of reading a large array, and of copying it (which reads and writes)."""
    source = torch.ones(_BANDWIDTH_BYTES // 4, device=device)
    target = torch.empty_like(source)
    reading = _median_seconds(lambda one, _: one.sum(), source, source)
    copying = _median_seconds(lambda one, other: other.copy_(one), source, target)
    return max(_BANDWIDTH_BYTES / reading, 2 * _BANDWIDTH_BYTES / copying)


def _median_seconds(product: Product, left: Tensor, right: Tensor) -> float:
    """Of one call; on an accelerator, of many in a row, since starting one takes longer than computing a small one."""
    calls = 1 if left.device.type == "cpu" else _CALLS
    product(left, right)
    taken: list[float] = []
    while len(taken) < _TIMES or (sum(taken) < _SECONDS and len(taken) < _MOST):
        _synchronize(left.device)
        began = time.perf_counter()
        for _ in range(calls):
            product(left, right)
        _synchronize(left.device)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) / calls


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
