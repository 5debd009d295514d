"""The decoder layers of a Llama-like model in a loop of our own, over the modules and weights that transformers loaded.

Sampling and training run the same loop. They differ in what a query may look at, which is `Attend`'s business, and in how
the weights lie (`Layer`): sampling has them fused and laid out beforehand, training uses the modules themselves.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

import torch
from peft import PeftModel
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from worker.policy.functions import Rotation, embedding, gated_linear, halves, normed_linears, rms_norm
from worker.policy.linear import adjoin, adjoining, linear
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


def run_layers(
    layers: Sequence[Layer], x_N_H: Tensor, rotate: Rotation, attend: Attend, *, recompute: bool = False
) -> Tensor:
    """The stream behind the last layer, (N, H). `recompute` keeps a layer's input only and computes it again for the gradient."""

    def run(index: int, layer: Layer, x_N_H: Tensor) -> Tensor:
        both, values = layer.read(x_N_H)
        widths = [both.shape[1] - values.shape[1], values.shape[1]]
        queries, keys = rotate(both).split(widths, dim=1)  # type: ignore[no-untyped-call]
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
        self.inputs = [getattr(self.attention, name) for name in ("q_proj", "k_proj", "v_proj")]
        self.gates = [getattr(self.mlp, name) for name in ("gate_proj", "up_proj")]
        self.adjoin()
        linears = [*self.attention.children(), *self.mlp.children()]
        known = (
            nn.Linear,
            LoraLinear,
            type(self.query_norm),
            type(self.key_norm),
            type(getattr(self.mlp, "act_fn", None)),
        )
        self.is_plain = all(type(linear) in known for linear in linears)

    def adjoin(self) -> None:
        """Lay the weights that read the same input one behind the other in memory, so that they are one product."""
        for together in (self.inputs, self.gates):
            if all(type(module) is nn.Linear for module in together):
                adjoin([module.weight for module in together])

    def read(self, x_N_H: Tensor) -> tuple[Tensor, Tensor]:
        """See `Layer`."""
        states = [one.view(len(x_N_H), -1, self.head_dim) for one in project_all(x_N_H, self.norms[0], self.inputs)]
        if len(states) == 1:
            of_query, of_key = (len(module.weight) // self.head_dim for module in self.inputs[:2])
            both, values = states[0].split([of_query + of_key, of_key], dim=1)  # type: ignore[no-untyped-call]
            values = values.contiguous()  # alone, since the gradient needs them and not the others
            if self.query_norm is None:
                return both, values
            queries, keys = both.split([of_query, of_key], dim=1)
        else:
            queries, keys, values = states
        if self.query_norm is not None and self.key_norm is not None:
            queries, keys = norm(queries, self.query_norm), norm(keys, self.key_norm)
        return torch.cat([queries, keys], dim=1), values

    def write(self, read_N_D: Tensor) -> Tensor:
        """See `Layer`."""
        return _project(read_N_D, cast(nn.Module, self.attention.o_proj))

    def think(self, x_N_H: Tensor) -> Tensor:
        """See `Layer`."""
        gate_up, down = project_all(x_N_H, self.norms[1], self.gates), cast(nn.Module, self.mlp.down_proj)
        if type(down) is nn.Linear and down.bias is None:
            return gated_linear(down.weight, *gate_up)
        gate, up = halves(gate_up)
        return _project(functional.silu(gate) * up, down)


def norm(x: Tensor, module: nn.Module) -> Tensor:
    """Root-mean-square normalisation over the last axis."""
    return rms_norm(x, cast(Tensor, module.weight), cast(float, module.variance_epsilon))


def project_all(x_N: Tensor, before: nn.Module, modules: Sequence[nn.Module]) -> list[Tensor]:
    """Linear layers that read the same normalised input: their outputs, or all side by side in one where the weights adjoin."""
    plain = [module for module in modules if type(module) is nn.Linear]
    weights: list[Tensor] = [module.weight for module in plain]
    in_own_precision = not torch.is_autocast_enabled(x_N.device.type) and all(one.dtype is x_N.dtype for one in weights)
    if len(plain) < len(modules) or not in_own_precision or adjoining(weights) is None:
        normal_N = norm(x_N, before)
        return [_project(normal_N, module) for module in modules]
    y_N = normed_linears(x_N, cast(Tensor, before.weight), cast(float, before.variance_epsilon), *weights)
    biases: list[Tensor] = [module.bias for module in plain if module.bias is not None]
    return [y_N + torch.cat(biases) if biases else y_N]


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
