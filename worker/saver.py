"""When an attempt saves: every so many steps, and wherever it ends; never twice for the same step."""

from collections.abc import Mapping
from dataclasses import replace

import torch

from worker.checkpoint import Trained, TrainingState, save_checkpoint
from worker.reporter import Place, Reporter


class Saver:
    """Writes the checkpoints of one attempt and registers them. At step 0 the model itself is one."""

    def __init__(
        self,
        place: Place,
        reporter: Reporter,
        trained: Trained,
        optimizer: torch.optim.Optimizer,
        *,
        every: int,
        steps: int,
        saved_step: int,
    ) -> None:
        self._place, self._reporter, self._trained, self._optimizer = place, reporter, trained, optimizer
        self._every, self._steps, self._saved_step = every, steps, saved_step

    def save_if_due(self, state: TrainingState, reference: Mapping[str, torch.Tensor] | None = None) -> None:
        """After every so many steps; the last step's is saved where the run ends."""
        if self._every and state.step % self._every == 0 and state.step < self._steps:
            self.save_if_new(state, reference)

    def save_if_new(self, state: TrainingState, reference: Mapping[str, torch.Tensor] | None = None) -> None:
        """Save the state, and a reference that follows the policy, unless no step was done since the newest checkpoint."""
        if state.step == self._saved_step:
            return
        self._reporter.show(state.step, "checkpoint", 0, 1)
        timed = replace(state, elapsed_seconds=self._reporter.elapsed_seconds)
        folder = self._place.checkpoint(state.step)
        saved = save_checkpoint(folder, self._trained, self._optimizer, timed, reference=reference)
        self._saved_step = state.step
        self._reporter.checkpoint(state.step, saved)
