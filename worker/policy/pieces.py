"""What stands around the matrix products of a layer, written so that the gradient keeps as little as it can.

A training pass holds every layer's intermediate values until the gradient comes back: they, and not the weights, decide how
many tokens fit.

Each piece computes the same bits with and without gradient. The reference is read without, the policy with; where their
weights are equal, their difference must be 0, since the optimizer would make whole steps of rounding.
"""

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from worker.policy.device import abilities
from worker.policy.linear import product


def rms_norm(x_N_H: Tensor, weight_H: Tensor, eps: float) -> Tensor:
    """x over its root mean square, times the weight (Zhang and Sennrich, 2019). Keeps x, which the residual stream has anyway."""
    if not torch.is_grad_enabled():
        return _normalised(x_N_H, weight_H, eps)
    y: Tensor = _RmsNorm.apply(x_N_H, weight_H, eps)  # type: ignore[no-untyped-call]
    return y


def gated_linear(gate: Tensor, up: Tensor, weight: Tensor) -> Tensor:
    """(silu(gate) × up) @ weight.T (Shazeer, 2020). Keeps the two inputs, and computes their product again for the gradient."""
    y: Tensor = _GatedLinear.apply(gate, up, weight)  # type: ignore[no-untyped-call]
    return y


def embedding(ids_N: Tensor, weight_V_H: Tensor, padding: int | None) -> Tensor:
    """The rows of a table, (N, H); `padding` gets no gradient, as in torch. The gradient is added to one that is there already, in
    its place: hooks on the table would not see it."""
    x: Tensor = _Embedding.apply(ids_N, weight_V_H, padding)  # type: ignore[no-untyped-call]
    return x


def _normalised(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    if abilities(x.device).whole_norm:  # one kernel; on a CPU it is many times slower for the rows of a training pass
        # autocast of torch 2.12 and later gives float32 back
        return functional.rms_norm(x, weight.shape, weight.to(x.dtype), eps).to(x.dtype)
    return (x * _scale(x, eps)).mul_(weight).to(x.dtype)


def _scale(x: Tensor, eps: float) -> Tensor:
    """1 over the root mean square, (N, 1)."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.promote_types(x.dtype, torch.float32))
    scale: Tensor = length.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return scale


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.eps = eps  # type: ignore[attr-defined]
        return _normalised(x, weight, eps)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        of_x, of_weight, _ = ctx.needs_input_grad  # type: ignore[attr-defined]
        scale = _scale(x, ctx.eps)  # type: ignore[attr-defined]
        normal = x * scale
        to_weight = (gradients[0] * normal).sum(tuple(range(x.dim() - 1))).to(weight.dtype) if of_weight else None
        if not of_x:
            return None, to_weight, None
        inner = gradients[0] * weight
        projected = (inner * normal).mean(-1, keepdim=True)
        return inner.addcmul_(normal, projected, value=-1).mul_(scale).to(x.dtype), to_weight, None


class _GatedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, gate: Tensor, up: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up, weight)
        return product(functional.silu(gate) * up, weight)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gate, up, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        opened = functional.silu(gate)
        to_weight = None
        if ctx.needs_input_grad[2]:  # type: ignore[attr-defined]
            to_weight = (gradients[0].t() @ (opened * up)).to(weight.dtype)
        to_product = product(gradients[0], weight.to(gradients[0].dtype).t())
        to_up = to_product * opened
        return torch.ops.aten.silu_backward(to_product.mul_(up), gate), to_up, to_weight


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, ids: Tensor, weight: Tensor, padding: int | None) -> Tensor:
        ctx.save_for_backward(ids, weight)
        ctx.padding = padding  # type: ignore[attr-defined]
        return functional.embedding(ids, weight)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[None, Tensor | None, None]:
        ids, weight = ctx.saved_tensors  # type: ignore[attr-defined]
        gradient = gradients[0]
        if ctx.padding is not None:  # type: ignore[attr-defined]
            gradient = gradient.masked_fill((ids == ctx.padding)[:, None], 0)  # type: ignore[attr-defined]
        if weight.grad is not None:
            weight.grad.index_add_(0, ids, gradient.to(weight.dtype))
            return None, None, None
        return None, torch.zeros_like(weight).index_add_(0, ids, gradient.to(weight.dtype)), None
