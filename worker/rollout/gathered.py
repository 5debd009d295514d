"""Sampling from weights in shards: each pass gathers layer after layer, so all processes pass through the model in step.

A process whose rows have ended passes on, with nothing in its hands, until the last one has ended.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from torch import Tensor, nn

from worker.policy.decoder import Decoder
from worker.policy.fused import SamplingWeights
from worker.policy.policy import Policy
from worker.ranks.sharding import gathered, layers_of

Result = TypeVar("Result")


def announce(policy: Policy) -> None:
    """Say that this process passes through the model now: the others pass on."""
    if policy.ranks.in_shards:
        policy.ranks.any(True)


def pass_on(policy: Policy, on_pass: Callable[[], None]) -> None:
    """Gather the weights as often as one of the others passes through the model. Returns when none does any more.

    `on_pass` is called after each pass, since all processes took part in it, and may raise.
    """
    if not policy.ranks.in_shards:
        return
    layers = layers_of(policy.model)

    def nothing() -> None:
        for layer in layers:
            gathered(layer, lambda: None)

    while policy.ranks.any(False):
        with policy.sampling() as model:
            gathered(model, nothing)
        on_pass()


class GatheredWeights(SamplingWeights):
    """The policy's own weights, where no process has all of them."""

    stays = False

    def __init__(self, policy: Policy) -> None:
        decoder = cast(Decoder, policy.decoder)
        self._policy, self._decoder = policy, decoder
        self.layers, self.dtype = decoder.layers, policy.compute_dtype
        self.head_dim, self.key_heads = decoder.layers[0].head_dim, int(decoder.config.num_key_value_heads)

    def load(self) -> None:
        """They are the policy's own."""

    def through(self, compute: Callable[[], Result]) -> Result:
        """See `SamplingWeights`."""
        announce(self._policy)
        with self._policy.sampling() as model:
            return gathered(model, compute)

    def leave(self, on_pass: Callable[[], None]) -> None:
        """See `SamplingWeights`."""
        pass_on(self._policy, on_pass)

    def logits(self, x_N_H: Tensor) -> Tensor:
        """See `SamplingWeights`."""
        output = cast(nn.Module, self._policy.model.get_output_embeddings())
        return cast(Tensor, output(self._decoder.normalise(x_N_H))).float()
