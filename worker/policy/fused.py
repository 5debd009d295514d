"""The weights as sampling reads them: what reads one input is one product, adapters are merged in, all laid out beforehand."""

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.nn import functional

from worker.policy.decoder import Decoder, Layer, ModuleLayer, norm
from worker.policy.device import abilities
from worker.policy.functions import Rotation
from worker.policy.linear import Projection, adjoining, projection

Result = TypeVar("Result")


class Fused:
    """Linear layers that read the same input, as one."""

    def __init__(self, modules: Sequence[nn.Module], dtype: torch.dtype, rows: int) -> None:
        self._modules, self._dtype, self._rows = modules, dtype, rows
        self.widths = [int(_weight(module).shape[0]) for module in modules]
        self._weight: Tensor | None = None
        self._bias: Tensor | None = None
        self._project: Projection
        self.load()

    @torch.no_grad()
    def load(self) -> None:
        """Take the weights as they are now; on a GPU copied to where they were, since recorded graphs read them there."""
        own = [_weight(module) for module in self._modules]
        copied = abilities(own[0].device).keeps_copies or own[0].dtype is not self._dtype
        alone = all(type(module) is nn.Linear and type(module.weight.data) is Tensor for module in self._modules)
        weight = adjoining(own) if alone and not copied else None  # the policy's own, until the rollout's end
        if weight is None:
            weight = torch.cat([_merged(module) for module in self._modules]).to(self._dtype)
        biases = [cast(Tensor | None, _base(module).bias) for module in self._modules]
        bias = None if biases[0] is None else torch.cat(cast(list[Tensor], biases)).to(self._dtype)
        if self._weight is not None:
            self._weight.copy_(weight)
            if self._bias is not None and bias is not None:
                self._bias.copy_(bias)
            return
        if abilities(weight.device).keeps_copies:
            self._weight, self._bias = weight, bias
        self._project = projection(weight, bias, self._rows)

    def __call__(self, x_N: Tensor) -> Tensor:
        """(N, in) to (N, the sum of the widths)."""
        return self._project(x_N)


class FusedLayer:
    """A decoder layer's weights for sampling."""

    module = None

    def __init__(self, layer: ModuleLayer, dtype: torch.dtype, rows: int) -> None:
        def fused(owner: nn.Module, *names: str) -> Fused:
            return Fused([getattr(owner, name) for name in names], dtype, rows)

        self._layer, self._dtype = layer, dtype
        self._read = fused(layer.attention, "q_proj", "k_proj", "v_proj")
        self._write = fused(layer.attention, "o_proj")
        self._gate_up = fused(layer.mlp, "gate_proj", "up_proj")
        self._down = fused(layer.mlp, "down_proj")
        self._heads = [width // layer.head_dim for width in self._read.widths]

    def load(self) -> None:
        """Copy the weights as they are now."""
        for fused in (self._read, self._write, self._gate_up, self._down):
            fused.load()

    def read(self, x_N_H: Tensor) -> tuple[Tensor, Tensor]:
        """See `Layer`."""
        states = self._read(norm(x_N_H, self._layer.norms[0]).to(self._dtype)).view(
            len(x_N_H), -1, self._layer.head_dim
        )
        both, values = states.tensor_split((sum(self._heads[:2]),), dim=1)
        if self._layer.query_norm is not None and self._layer.key_norm is not None:
            queries, keys = both.tensor_split((self._heads[0],), dim=1)
            both = torch.cat([norm(queries, self._layer.query_norm), norm(keys, self._layer.key_norm)], dim=1)
        return both, values

    def write(self, read_N_D: Tensor) -> Tensor:
        """See `Layer`."""
        return self._write(read_N_D)

    def think(self, x_N_H: Tensor) -> Tensor:
        """See `Layer`."""
        gate, up = self._gate_up(norm(x_N_H, self._layer.norms[1]).to(self._dtype)).chunk(2, dim=-1)
        return self._down(functional.silu(gate) * up)


class SamplingWeights:
    """All that turns token ids into logits, as the weights are when it is made or loaded."""

    layers: Sequence[Layer]
    stays = True
    """Whether the weights stay where they are from one pass to the next."""

    def __init__(self, decoder: Decoder, output: nn.Module, dtype: torch.dtype, *, rows: int) -> None:
        self._decoder, self.dtype = decoder, dtype
        self._copies = [FusedLayer(layer, dtype, rows) for layer in decoder.layers]
        self.layers = self._copies
        self._output = Fused([output], dtype, rows)
        config = decoder.config
        self.head_dim = decoder.layers[0].head_dim
        self.key_heads = int(config.num_key_value_heads)

    def load(self) -> None:
        """Copy the weights as they are now."""
        for layer in self._copies:
            layer.load()
        self._output.load()

    def through(self, compute: Callable[[], Result]) -> Result:
        """One pass through the model: `compute` may read the weights."""
        return compute()

    def leave(self, on_pass: Callable[[], None]) -> None:
        """No more passes of this rollout; `on_pass` is called after each one of another process."""

    def embed(self, ids_N: Tensor) -> Tensor:
        """The stream before the first layer, (N, H): in float32, as in training, whatever the products are in."""
        return self._decoder.embed(ids_N)

    def rotation(self, positions_N: Tensor) -> Rotation:
        """The rotation at these positions, in float32 as in training."""
        like = torch.empty(1, 1, dtype=torch.float32, device=positions_N.device)
        return self._decoder.rotation(positions_N, like)

    def logits(self, x_N_H: Tensor) -> Tensor:
        """Of the next token, (N, V), in float32."""
        return self._output(self._decoder.normalise(x_N_H).to(self.dtype)).float()

    @property
    def token_bytes(self) -> int:
        """The keys and values of one token."""
        return 2 * len(self.layers) * self.key_heads * self.head_dim * self.dtype.itemsize


def _base(module: nn.Module) -> nn.Module:
    return module.get_base_layer() if isinstance(module, LoraLinear) else module


def _weight(module: nn.Module) -> Tensor:
    return cast(Tensor, _base(module).weight)


def _merged(module: nn.Module) -> Tensor:
    """The weight, with the adapters that are on."""
    weight = _weight(module)
    if isinstance(module, LoraLinear) and not module.disable_adapters:
        for name in module.active_adapters:
            weight = weight + module.get_delta_weight(name)
    return weight
