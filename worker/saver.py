"""When an attempt saves: at regular steps, and wherever it ends; never twice for the same step."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import torch

from backend.contract.preference import PairBudget
from backend.contract.training import ADAMW_STATES, FLOAT32, GIB, Budget
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
        budget: Budget | PairBudget,
        saved_step: int,
    ) -> None:
        self._place, self._reporter, self._trained, self._optimizer = place, reporter, trained, optimizer
        self._budget, self._saved_step = budget, saved_step
        self._unfinished: Path | None = None  # a checkpoint that is written and not whole yet

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._unfinished is not None:
            discard_checkpoint(self._unfinished)

    def warn_if_short(self) -> None:
        """Say in the run's log where what is free holds fewer checkpoints than are still to be kept at once."""
        trained = sum(parameter.numel() for _, parameter in self._trained.named_parameters())
        each = trained * FLOAT32 * (1 + ADAMW_STATES)
        left = max(1, self._budget.steps - self._saved_step)
        count = self._budget.keep.most(left, self._budget.checkpoint_every)
        free = shutil.disk_usage(self._place.store.parent).free
        if count * each > free:
            self._reporter.log(
                "warning",
                f"{free / GIB:.2f} GiB are free at {self._place.store}, and up to {count:,} checkpoints of {each / GIB:.2f} GiB "
                "are to be saved there: free some space, or keep fewer (budget.keep) in the next run",
            )

    def save_if_due(self, state: TrainingState, reference: Mapping[str, torch.Tensor] | None = None) -> None:
        """At regular steps; the last step's is saved where the run ends."""
        every = self._budget.checkpoint_every
        if every and state.step % every == 0 and state.step < self._budget.steps:
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
