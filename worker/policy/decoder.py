"""The decoder layers of a Llama-like model in a loop of our own, over the modules and weights that transformers loaded.

Sampling and training run the same loop. They differ in what a query may look at, which is `Attend`'s business, and in how
the weights lie (`Layer`): sampling has them fused and laid out beforehand, training uses the modules themselves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from peft import PeftModel
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from worker.policy.device import abilities
from worker.policy.linear import linear, product
from worker.ranks.sharding import gathered

_FAMILIES = {"llama", "mistral", "qwen2", "qwen3"}
# The others change with the length of the sequence, which a row of a packed batch does not know.
_ROPES = {"default", "linear", "llama3", "yarn"}

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, queries (N, heads, d), keys and values (N, kv heads, d)) to what each query read, (N, heads, d)."""


class Layer(Protocol):
    """One decoder layer's weights."""

    @property
    def module(self) -> nn.Module | None:
        """The module whose own weights it reads; None for a copy."""

    def read(self, x_N_H: Tensor) -> tuple[Tensor, Tensor]:
        """Of the normalised input: queries and then keys (N, heads + kv heads, d), not rotated yet, and values (N, kv heads, d)."""

    def write(self, read_N_D: Tensor) -> Tensor:
        """What the attention adds to the stream, (N, H)."""

    def think(self, x_N_H: Tensor) -> Tensor:
        """What the feed-forward part adds to the stream, (N, H)."""


@dataclass(frozen=True)
class Rotation:
    """Rotary position embedding of N tokens: cosines and sines (N, 1, d / 2)."""

    cos: Tensor
    sin: Tensor

    def __call__(self, states_N_heads_d: Tensor) -> Tensor:
        """The states (N, heads, d), rotated."""
        first, second = states_N_heads_d.chunk(2, dim=-1)
        rotated = (
            torch.addcmul(first * self.cos, second, self.sin, value=-1),
            torch.addcmul(second * self.cos, first, self.sin),
        )
        return torch.cat(rotated, dim=-1).to(states_N_heads_d.dtype)

    def of(self, places: Tensor) -> "Rotation":
        """Of some of the tokens."""
        return Rotation(self.cos[places], self.sin[places])


def run_layers(
    layers: Sequence[Layer], x_N_H: Tensor, rotate: Rotation, attend: Attend, *, recompute: bool = False
) -> Tensor:
    """The stream behind the last layer, (N, H). `recompute` keeps a layer's input only and computes it again for the gradient."""

    def run(index: int, layer: Layer, x_N_H: Tensor) -> Tensor:
        both, values = layer.read(x_N_H)
        queries, keys = rotate(both).tensor_split((-values.shape[1],), dim=1)
        x_N_H = x_N_H + layer.write(attend(index, queries, keys, values).flatten(-2))
        return x_N_H + layer.think(x_N_H)

    def run_kept(index: int, layer: Layer, x_N_H: Tensor) -> Tensor:
        return cast(Tensor, checkpoint(run, index, layer, x_N_H, use_reentrant=False))

    for index, layer in enumerate(layers):
        x_N_H = gathered(layer.module, run_kept if recompute else run, index, layer, x_N_H)
    return x_N_H


class Decoder:
    """A Llama-like model: embedding, layers, norm. The output layer is the caller's."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._decoder: nn.Module = model.get_decoder()  # type: ignore[no-untyped-call]
        self.config = model.config
        self.table = cast(nn.Embedding, self._decoder.embed_tokens)
        self.layers = [ModuleLayer(layer) for layer in cast(nn.ModuleList, self._decoder.layers)]

    @staticmethod
    def of(model: PreTrainedModel | PeftModel) -> "Decoder | None":
        """The decoder of a model that this file knows how to run; None for others."""
        base = cast(PreTrainedModel, model.get_base_model() if isinstance(model, PeftModel) else model)
        config = base.config
        rope = getattr(config, "rope_parameters", None) or {}
        known = (
            config.model_type in _FAMILIES
            and config.hidden_act == "silu"
            and rope.get("rope_type", "default") in _ROPES
            and not (getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None))
            and all(kind == "full_attention" for kind in getattr(config, "layer_types", None) or [])
            and not getattr(config, "attention_dropout", 0)
        )
        if not known:
            return None
        decoder = Decoder(base)
        own = [type(decoder.table) is nn.Embedding, *(layer.is_plain for layer in decoder.layers)]
        return decoder if all(own) else None

    def embed(self, ids_N: Tensor) -> Tensor:
        """The stream before the first layer, (N, H)."""
        return embedding(ids_N, self.table.weight, self.table.padding_idx)

    def rotation(self, positions_N: Tensor, like: Tensor) -> Rotation:
        """The rotation at these positions, in the precision of `like`."""
        cos, sin = self._decoder.rotary_emb(like[None], positions_N[None])  # type: ignore[operator]
        half = cos.shape[-1] // 2  # transformers repeats them for its two halves
        return Rotation(cos[0, :, None, :half], sin[0, :, None, :half])

    def normalise(self, x_N_H: Tensor) -> Tensor:
        """What the output layer reads, (N, H)."""
        return norm(x_N_H, cast(nn.Module, self._decoder.norm))


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


class ModuleLayer:
    """A layer by its modules, adapters included: gradients flow to them."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.attention = cast(nn.Module, module.self_attn)
        self.mlp = cast(nn.Module, module.mlp)
        self.norms = cast(nn.Module, module.input_layernorm), cast(nn.Module, module.post_attention_layernorm)
        self.query_norm = getattr(self.attention, "q_norm", None)
        self.key_norm = getattr(self.attention, "k_norm", None)
        self.head_dim = int(self.attention.head_dim)  # type: ignore[arg-type]
        linears = [*self.attention.children(), *self.mlp.children()]
        known = (
            nn.Linear,
            LoraLinear,
            type(self.query_norm),
            type(self.key_norm),
            type(getattr(self.mlp, "act_fn", None)),
        )
        self.is_plain = all(type(linear) in known for linear in linears)

    def read(self, x_N_H: Tensor) -> tuple[Tensor, Tensor]:
        """See `Layer`."""
        x_N_H = norm(x_N_H, self.norms[0])
        queries, keys, values = (
            _project(x_N_H, getattr(self.attention, name)).unflatten(-1, (-1, self.head_dim))  # type: ignore[no-untyped-call]
            for name in ("q_proj", "k_proj", "v_proj")
        )
        if self.query_norm is not None and self.key_norm is not None:
            queries, keys = norm(queries, self.query_norm), norm(keys, self.key_norm)
        return torch.cat([queries, keys], dim=1), values

    def write(self, read_N_D: Tensor) -> Tensor:
        """See `Layer`."""
        return _project(read_N_D, cast(nn.Module, self.attention.o_proj))

    def think(self, x_N_H: Tensor) -> Tensor:
        """See `Layer`."""
        x_N_H = norm(x_N_H, self.norms[1])
        gate, up = (_project(x_N_H, getattr(self.mlp, name)) for name in ("gate_proj", "up_proj"))
        down = cast(nn.Module, self.mlp.down_proj)
        if type(down) is nn.Linear and down.bias is None:
            return gated_linear(gate, up, down.weight)
        return _project(functional.silu(gate) * up, down)


def norm(x: Tensor, module: nn.Module) -> Tensor:
    """Root-mean-square normalisation over the last axis."""
    return rms_norm(x, cast(Tensor, module.weight), cast(float, module.variance_epsilon))


def _project(x_N: Tensor, module: nn.Module) -> Tensor:
    """A linear layer, with the adapters that are on."""
    if isinstance(module, LoraLinear):
        base = module.get_base_layer()
        y_N = linear(x_N, cast(Tensor, base.weight), cast(Tensor | None, base.bias))
        if not module.disable_adapters:
            for name in module.active_adapters:
                down, up = module.lora_A[name], module.lora_B[name]
                y_N = y_N + module.scaling[name] * linear(
                    linear(x_N, cast(Tensor, down.weight)), cast(Tensor, up.weight)
                )
        return y_N
    return linear(x_N, cast(Tensor, module.weight), cast(Tensor | None, module.bias))
