"""Updates that were not applied because their gradient was not finite."""

from worker.errors import RunFailure

_MOST_IN_A_ROW = 3


class SkippedUpdates:
    """Counts them, and ends the run when they do not stop."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def count(self, step: int, *, applied: bool, loss: float, learning_rate: float) -> None:
        """Take note of a step. Raises RunFailure `diverged` at the third in a row that was not applied."""
        self._in_a_row = 0 if applied else self._in_a_row + 1
        if self._in_a_row >= _MOST_IN_A_ROW:
            raise RunFailure(
                "diverged",
                f"The gradient was not finite in {self._in_a_row} steps in a row, the last being step {step} (loss {loss}). "
                "Nothing of it was applied: start again from the last checkpoint with a lower learning rate than "
                f"{learning_rate:g}.",
            )
