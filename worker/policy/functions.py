"""What a decoder layer is made of, with gradients that keep little: norms, rotations, linear layers, the gated part, embeddings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from worker.policy.device import abilities
from worker.policy.linear import adjoining, product


@dataclass(frozen=True)
class Rotation:
    """Rotary position embedding of N tokens: cosines and sines (N, 1, d / 2)."""

    cos: Tensor
    sin: Tensor

    def __call__(self, states_N_heads_d: Tensor) -> Tensor:
        """The states (N, heads, d), rotated; the gradient keeps none of them."""
        if not torch.is_grad_enabled():
            return _turned(states_N_heads_d, self.cos, self.sin)
        y: Tensor = _Rotated.apply(states_N_heads_d, self.cos, self.sin)  # type: ignore[no-untyped-call]
        return y

    def of(self, places: Tensor) -> "Rotation":
        """Of some of the tokens."""
        return Rotation(self.cos[places], self.sin[places])


def rms_norm(x_N_H: Tensor, weight_H: Tensor, eps: float) -> Tensor:
    """x over its root mean square, times the weight (Zhang and Sennrich, 2019). Keeps x, which the residual stream has anyway."""
    if not torch.is_grad_enabled():
        return _normalised(x_N_H, weight_H, eps)
    y: Tensor = _RmsNorm.apply(x_N_H, weight_H, eps)  # type: ignore[no-untyped-call]
    return y


def normed_linears(x_N_H: Tensor, norm_H: Tensor, eps: float, *weights: Tensor) -> Tensor:
    """Linear layers of `rms_norm(x)`, side by side, whose weights adjoin. Keeps x alone: what they read is computed again for the
    gradient."""
    y: Tensor = _NormedLinears.apply(x_N_H, norm_H, eps, *weights)  # type: ignore[no-untyped-call]
    return y


def gated_linear(weight: Tensor, *gate_up: Tensor) -> Tensor:
    """(silu(gate) × up) @ weight.T (Shazeer, 2020), of gate and up (N, in) each, or in one, side by side. Keeps these, and computes
    their product again for the gradient."""
    y: Tensor = _GatedLinear.apply(weight, *gate_up)  # type: ignore[no-untyped-call]
    return y


def halves(gate_up: Sequence[Tensor]) -> Sequence[Tensor]:
    """Gate and up, which may be side by side in one."""
    return gate_up[0].chunk(2, dim=-1) if len(gate_up) == 1 else gate_up


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


class _Rotated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(states, cos, sin)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors  # type: ignore[attr-defined]
        return _turned(gradients[0], cos, -sin), None, None


def _turned(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    turned = torch.empty_like(states, dtype=torch.promote_types(states.dtype, cos.dtype))
    (first, second), (to_first, to_second) = states.chunk(2, dim=-1), turned.chunk(2, dim=-1)
    torch.mul(first, cos, out=to_first).addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=to_second).addcmul_(first, sin)
    return turned.to(states.dtype)


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
        return *_through_norm(gradients[0], x * scale, scale, weight, of_x, of_weight), None


def _through_norm(
    gradient: Tensor, normal: Tensor, scale: Tensor, weight: Tensor, of_x: bool, of_weight: bool
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of x and of the weight, where `normal` is x over its root mean square, and `scale` 1 over that."""
    along = gradient * normal
    to_weight = along.sum(tuple(range(along.dim() - 1))).to(weight.dtype) if of_weight else None
    if not of_x:
        return None, to_weight
    projected = (along @ weight.to(along.dtype))[..., None] / len(weight)
    return (gradient * weight).addcmul_(normal, projected, value=-1).mul_(scale).to(gradient.dtype), to_weight


class _NormedLinears(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, norm: Tensor, eps: float, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(x, norm, *weights)
        ctx.eps = eps  # type: ignore[attr-defined]
        return product(_normalised(x, norm, eps), cast(Tensor, adjoining(weights)))

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, norm, *weights = ctx.saved_tensors  # type: ignore[attr-defined]
        of_x, of_norm, _, *of_weights = ctx.needs_input_grad  # type: ignore[attr-defined]
        scale, to_weights = _scale(x, ctx.eps), [None] * len(weights)  # type: ignore[attr-defined]
        normal = x * scale
        if any(of_weights):
            parts = (gradients[0].t() @ (normal * norm)).split([len(weight) for weight in weights])
            to_weights = [part if wanted else None for part, wanted in zip(parts, of_weights, strict=True)]
        to_product = product(gradients[0], cast(Tensor, adjoining(weights)).t())
        return *_through_norm(to_product, normal, scale, norm, of_x, of_norm), None, *to_weights


class _GatedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, weight: Tensor, *gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(weight, *gate_up)
        gate, up = halves(gate_up)
        return product(functional.silu(gate).mul_(up), weight)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weight, *gate_up = ctx.saved_tensors  # type: ignore[attr-defined]
        to = [torch.empty_like(one) for one in gate_up]
        (gate, up), (to_gate, to_up) = halves(gate_up), halves(to)
        opened = functional.silu(gate)
        to_weight = None
        if ctx.needs_input_grad[0]:  # type: ignore[attr-defined]
            to_weight = (gradients[0].t() @ (opened * up)).to(weight.dtype)
        to_product = product(gradients[0], weight.to(gradients[0].dtype).t())
        torch.mul(to_product, opened, out=to_up)
        torch.ops.aten.silu_backward(to_product.mul_(up), gate, grad_input=to_gate)
        return to_weight, *to


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
