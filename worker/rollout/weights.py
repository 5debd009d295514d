"""The policy's weights, for an engine that samples with a copy of them."""

from collections.abc import Iterator
from typing import cast

import torch
from peft import PeftModel
from peft.tuners.lora import Linear
from torch import Tensor

from worker.policy.policy import Policy

_INSIDE_ADAPTED = ".base_layer."


@torch.no_grad()
def plain_weights(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """The weights by the names that the model has without adapters: tied ones under each of their names.

    A copy may hold tied weights apart, as vLLM does on a CPU, and then needs them twice. What adapters add is in them; the
    policy's own tensors stay as they are.
    """
    if not isinstance(policy.model, PeftModel):
        yield from policy.model.named_parameters(remove_duplicate=False)
        return
    model = policy.model.get_base_model()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        weight: Tensor = parameter
        if ".lora_" in name:
            continue
        if name.endswith(f"{_INSIDE_ADAPTED}weight"):
            layer = cast(Linear, model.get_submodule(name.removesuffix(f"{_INSIDE_ADAPTED}weight")))
            weight = weight + layer.get_delta_weight(layer.active_adapters[0])
        yield name.replace(_INSIDE_ADAPTED, "."), weight
