"""Training passes without dropout: it would make the first ratio differ from 1, and the log-probs from those that were sampled by."""

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
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)


def recomputes(model: torch.nn.Module) -> bool:
    """Whether the model was set up to recompute its activations in the backward pass."""
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


@contextmanager
def recomputing(model: torch.nn.Module) -> Iterator[None]:
    """Let the layers recompute their activations, where the model was set up so; the rest stays in evaluation mode.

    transformers recomputes only in training mode, and training mode of the whole model would turn dropout on.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    layers = [layer for layer in layers if getattr(layer, "gradient_checkpointing", False)]
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False
