"""Linear layers through the fastest matrix product at hand.

PyTorch multiplies float32 matrices on the CPU with MKL, which leaves half of an AMD core's vector units unused; oneDNN, which
PyTorch ships too, uses all of them, in the same precision. Everywhere else PyTorch's own choice is the fastest.
"""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

Projection = Callable[[Tensor], Tensor]
"""From (N, in) to (N, out)."""


@cache
def prefers_onednn() -> bool:
    """Whether float32 products on this CPU are oneDNN's. It depends on the machine alone: a resume computes the same."""
    cpu = Path("/proc/cpuinfo")
    return (
        torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and cpu.is_file()
        and "AuthenticAMD" in cpu.read_text()
    )


def _by_onednn(x: Tensor, weight: Tensor) -> bool:
    return (
        x.device.type == "cpu"
        and x.dtype is torch.float32
        and weight.dtype is torch.float32
        and not torch.is_autocast_enabled("cpu")
        and prefers_onednn()
    )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias, with gradients. `x` is (N, in), `weight` (out, in)."""
    if not _by_onednn(x, weight):
        return functional.linear(x, weight, bias)
    y: Tensor = _OneDnnLinear.apply(x, weight)  # type: ignore[no-untyped-call]
    return y if bias is None else y + bias


@torch.no_grad()
def adjoin(weights: Sequence[Tensor]) -> None:
    """Lay these weights (out, in) one behind the other in memory, if they do not stand so; values stay.

    Frozen ones stay in the file that they are mapped from, and those in shards where FSDP2 reads them.
    """
    movable = all(weight.requires_grad and type(weight.data) is Tensor for weight in weights)
    if not movable or adjoining(weights) is not None:
        return
    parts = torch.cat([weight.data for weight in weights]).split(list(map(len, weights)))  # type: ignore[no-untyped-call]
    for weight, part in zip(weights, parts, strict=True):
        weight.data = part


def adjoining(weights: Sequence[Tensor]) -> Tensor | None:
    """These weights as one, (the sum of out, in), in the same memory; None if they do not stand one behind the other there."""
    first, end = weights[0].detach(), weights[0].data_ptr()
    for one in weights:
        own = one.data_ptr() == end and one.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not own or one.dtype is not first.dtype or one.shape[1:] != first.shape[1:] or not one.is_contiguous():
            return None
        end += one.nbytes
    return first.as_strided((sum(map(len, weights)), first.shape[1]), first.stride())


@torch.no_grad()
def product(x: Tensor, y: Tensor) -> Tensor:
    """x @ y.T, without gradients. `x` is (N, K), `y` (M, K); either may be a transposed view."""
    return _multiply(x, y) if _by_onednn(x, y) else functional.linear(x, y)


@torch.no_grad()
def add_product(to: Tensor, x: Tensor, y: Tensor) -> None:
    """Add x @ y.T to what is there."""
    if to.dtype is not x.dtype or _by_onednn(x, y):
        to += product(x, y)
    else:
        to.addmm_(x, y.t())


def projection(weight: Tensor, bias: Tensor | None, rows: int) -> Projection:
    """A linear layer whose weight stays as it is: laid out beforehand, best for inputs of about `rows` rows."""
    if not _by_onednn(weight, weight):
        return lambda x: functional.linear(x, weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)
    return lambda x: _multiply(x, packed, bias)


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


class _OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight, *([x] if weight.requires_grad else []))  # beside adapters it is frozen
        return _multiply(x, weight)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        weight, *x = ctx.saved_tensors  # type: ignore[attr-defined]
        (gradient,) = gradients
        of_x, of_weight = ctx.needs_input_grad  # type: ignore[attr-defined]
        return (
            _multiply(gradient, weight.t()) if of_x else None,
            gradient.t() @ x[0] if of_weight else None,  # oneDNN would copy both to turn them,
        )
