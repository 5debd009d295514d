"""The learning rate of a step."""

import math

from backend.contract.training import Optimizer


def learning_rate(optimizer: Optimizer, step: int, *, steps: int) -> float:
    """Of step `step` (from 0) of `steps`: warm-up, then constant, or falling to 0 by the last step."""
    if step < optimizer.warmup_steps:
        return optimizer.learning_rate * (step + 1) / optimizer.warmup_steps
    done = (step - optimizer.warmup_steps) / max(1, steps - optimizer.warmup_steps)
    if optimizer.schedule == "linear":
        return optimizer.learning_rate * (1 - done)
    if optimizer.schedule == "cosine":
        return optimizer.learning_rate * (1 + math.cos(math.pi * done)) / 2
    return optimizer.learning_rate
