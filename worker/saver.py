"""When an attempt saves: every so many steps, and wherever it ends; never twice for the same step."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import torch

from worker.checkpoint import (
    Saved,
    Trained,
    TrainingState,
    complete_checkpoint,
    discard_checkpoint,
    write_checkpoint,
)
from worker.reporter import Place, Reporter


class Saver:
    """Writes the checkpoints of one attempt and has them registered. At step 0 the model itself is one.

    Training goes on as soon as a checkpoint's files are written: they are hashed and forced to the disk in the background.
    To be left after the reporter: what is not whole then never will be, and goes.
    """

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
        self._unfinished: Path | None = None  # a checkpoint that is written and not whole yet

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._unfinished is not None:
            discard_checkpoint(self._unfinished)

    def save_if_due(self, state: TrainingState, reference: Mapping[str, torch.Tensor] | None = None) -> None:
        """After every so many steps; the last step's is saved where the run ends."""
        if self._every and state.step % self._every == 0 and state.step < self._steps:
            self.save_if_new(state, reference)

    def save_if_new(self, state: TrainingState, reference: Mapping[str, torch.Tensor] | None = None) -> None:
        """Save the state, and a reference that follows the policy, unless no step was done since the newest checkpoint."""
        if state.step == self._saved_step:
            return
        self._reporter.show(state.step, "checkpoint", 0, 1)
        if self._unfinished is not None:
            self._reporter.wait()  # one checkpoint is written at a time
        timed = replace(state, elapsed_seconds=self._reporter.elapsed_seconds)
        folder = self._place.checkpoint(state.step)
        write_checkpoint(folder, self._trained, self._optimizer, timed, reference=reference)
        self._saved_step, self._unfinished = state.step, folder
        self._reporter.checkpoint(state.step, lambda: self._complete(folder))

    def _complete(self, folder: Path) -> Saved:
        saved = complete_checkpoint(folder)
        self._unfinished = None
        return saved
