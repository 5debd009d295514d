"""Updates that were not applied because their gradient was not finite."""

import math
from collections.abc import Sequence

import torch

from worker.errors import RunFailure

_MOST_IN_A_ROW = 3


def clipped(parameters: Sequence[tuple[str, torch.nn.Parameter]], most: float, loss: float) -> tuple[float, str]:
    """Scale the gradient down to the norm `most`. Returns its norm before that, and what was not finite, in words; "" if all was.

    A gradient that is not finite stays as it is: scaled by a norm that is NaN, no tensor could be told from another.
    """
    known = [(name, parameter) for name, parameter in parameters if parameter.grad is not None]
    gradients = [parameter.grad for _, parameter in known if parameter.grad is not None]
    norm = float(total := torch.nn.utils.get_total_norm(gradients))
    if math.isfinite(norm) and math.isfinite(loss):
        torch.nn.utils.clip_grads_with_norm_([parameter for _, parameter in known], most, total)
        return norm, ""
    for (name, _), gradient in zip(known, gradients, strict=True):
        if not gradient.isfinite().all():
            return math.nan, f"the gradient of {name}"
    return math.nan, "the loss" if not math.isfinite(loss) else "the norm of the gradient"


class SkippedUpdates:
    """Counts them, and ends the run when they do not stop."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def count(self, step: int, *, fault: str, loss: float, learning_rate: float) -> None:
        """Take note of a step and of what was not finite in it. Raises RunFailure `diverged` at the third such step in a row."""
        self._in_a_row = self._in_a_row + 1 if fault else 0
        if self._in_a_row >= _MOST_IN_A_ROW:
            raise RunFailure(
                "diverged",
                f"The gradient was not finite in {self._in_a_row} steps in a row, the last being step {step} (loss {loss}; first: {fault}). "
                "Nothing of it was applied: start again from the last checkpoint with a lower learning rate than "
                f"{learning_rate:g}.",
            )
