"""Training passes without dropout: it would make the first ratio differ from 1."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers.modeling_layers import GradientCheckpointingLayer


def without_dropout(model: torch.nn.Module) -> None:
    """Set every share that the model's modules drop in training mode to 0: of modules, and what functions are handed.

    The configuration stays as it is, and is saved so.
    """
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
        vars(module).update(dict.fromkeys(_drops(module), 0.0))


def recomputes(model: torch.nn.Module) -> bool:
    """Whether the model was set up to recompute its activations in the backward pass."""
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


@contextmanager
def recomputing(model: torch.nn.Module) -> Iterator[None]:
    """Let the layers recompute their activations, where the model was set up so; the rest stays in evaluation mode.

    transformers recomputes only in training mode. Some layers read then, at each pass, from the configuration what they drop.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    layers = [layer for layer in layers if getattr(layer, "gradient_checkpointing", False)]
    configs = {
        id(config): config for module in model.modules() if (config := getattr(module, "config", None)) is not None
    }
    dropped = [(config, _drops(config)) for config in configs.values() if layers]
    for layer in layers:
        layer.training = True
    for config, shares in dropped:
        vars(config).update(dict.fromkeys(shares, 0.0))
    try:
        yield
    finally:
        for config, shares in dropped:
            vars(config).update(shares)
        for layer in layers:
            layer.training = False


def _drops(owner: object) -> dict[str, float]:
    return {name: value for name, value in vars(owner).items() if "drop" in name and isinstance(value, float)}
