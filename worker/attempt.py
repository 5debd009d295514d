"""One attempt of a run, from its start to its end: between its steps it evaluates, saves, and ends if it is asked to."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from backend.contract.preference import PairBudget
from backend.contract.training import ADAMW_STATES, FLOAT32, GIB, Budget
from worker.checkpoint import (
    Saved,
    Tensors,
    Trained,
    TrainingState,
    complete_checkpoint,
    discard_checkpoint,
    load_optimizer,
    load_state,
    write_checkpoint,
)
from worker.errors import Interrupted
from worker.reporter import Channels, Ending, Place, Reporter

Evaluate = Callable[[], tuple[dict[str, float], str]]
"""An evaluation: its metrics, and in words what came of it; "" if there is nothing to say."""


class Attempt:
    """The loop under every trainer. It goes on from the checkpoint that its place names."""

    def __init__(
        self,
        place: Place,
        channels: Channels,
        trained: Trained,
        optimizer: torch.optim.Optimizer,
        budget: Budget | PairBudget,
        more: Callable[[], Mapping[str, Tensors | None]] = dict,
    ) -> None:
        """`more` gives what else belongs into a checkpoint, by the name of its file: a reference that follows the policy."""
        self.state = TrainingState(step=0, cursor=0, num_tokens=0, samples=0, elapsed_seconds=0.0)
        if place.resume is not None:
            self.state = load_state(place.resume)
            load_optimizer(place.resume, trained, optimizer)
        self.ending: Ending = "finished"
        self.reporter = Reporter(
            place,
            channels,
            total_steps=budget.steps,
            elapsed=self.state.elapsed_seconds,
            interruptible=trained.ranks.alone,  # others would wait for one that leaves a step
        )
        self._place, self._channels, self._trained, self._optimizer = place, channels, trained, optimizer
        self._budget, self._more, self._saved_step = budget, more, self.state.step
        self._remarked: set[str] = set()
        self._unfinished: Path | None = None  # a checkpoint that is written and not whole yet

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Report and save inside; leaving waits until everything is sent. If the worker shuts down, the last whole step is saved.

        A checkpoint that is still incomplete then is deleted.
        """
        try:
            with self.reporter:
                try:
                    yield
                except Interrupted as interrupted:  # the next attempt draws the same step again
                    self._save()
                    self.ending = interrupted.ending
        finally:
            if self._unfinished is not None:
                discard_checkpoint(self._unfinished)

    def start(self, about: str) -> None:
        """Say where the attempt begins and `about` what it trains on, and whether its checkpoints fit on the disk.

        A fork whose worker did steps of its trunk again saves where it is: no other attempt has to do them.
        """
        count = sum(parameter.numel() for _, parameter in self._trained.named_parameters())
        self.reporter.start(self.state.step, f"{count:,} trained parameters, {about}")
        self._warn_if_short(count * FLOAT32 * (1 + ADAMW_STATES))
        if self._place.resume is not None and self._place.resume.parent == self._place.repeated:
            self._saved_step = -1
            self._save()

    def _warn_if_short(self, each: int) -> None:
        """Warn in the run's log if the free space holds fewer checkpoints of `each` bytes than are still to be kept at once."""
        store, left = self._place.store, max(1, self._budget.steps - self._saved_step)
        most = 1 if store.bucket else self._budget.keep.most(left, self._budget.checkpoint_every)
        free = shutil.disk_usage(store.folder.parent).free
        if most * each > free:
            self.reporter.log(
                "warning",
                f"{free / GIB:.2f} GiB are free at {store.folder}, and up to {most:,} checkpoints of {each / GIB:.2f} GiB "
                "are to be saved there: free some space, or keep fewer (budget.keep) in the next run",
            )

    def steps(self, evaluate: Evaluate) -> Iterator[int]:
        """The steps that are still to be done, until the run ends or is asked to; `ending` then says how it ended."""
        for step in range(self.state.step, self._budget.steps):
            ending = self._trained.ranks.of_first(self.reporter.asked_to_end())
            if ending is not None:
                self._save()
                self.ending = ending
                return
            self._evaluate_if_due(step, evaluate)
            yield step
            every = self._budget.checkpoint_every
            if every and self.state.step % every == 0 and self.state.step < self._budget.steps:
                self._save()
            self._channels.between_steps()
        self._evaluate_if_due(self._budget.steps, evaluate)
        self._save()

    def advance(self, *, drawn: int, tokens: int, samples: int) -> None:
        """Count a finished step. See `TrainingState.after_step`."""
        self.state = self.state.after_step(drawn=drawn, tokens=tokens, samples=samples)

    def warn(self, step: int, remarks: list[str], fault: str) -> None:
        """Log what the model and the optimizer remarked since the last step, and what was not finite in this one.

        What other processes remarked is said, too, unless one of them had remarked the same.
        """
        own, *others = self._trained.ranks.gather(remarks)
        new = dict.fromkeys(one for remarked in others for one in remarked if one not in {*own, *self._remarked})
        for remark in (*own, *new):
            self._remarked.add(remark)
            self.reporter.log("warning", remark)
        remarks.clear()
        if fault:
            self.reporter.log("warning", f"step {step}: {fault} was not finite, so the update was not applied")

    def show(self, phase: str, done: int, total: int) -> None:
        """Progress inside a step. Raises Interrupted when the worker shuts down and the weights are untouched."""
        self.reporter.show(self.state.step, phase, done, total)

    def _evaluate_if_due(self, step: int, evaluate: Evaluate) -> None:
        every = self._budget.eval_every
        if not every or (step % every and step != self._budget.steps):
            return
        metrics, summary = evaluate()
        self.reporter.metrics(step, metrics)
        if summary:
            self.reporter.log("info", f"after {step} steps: {summary}")

    def _save(self) -> None:
        """Save the state, unless no step was done since the newest checkpoint (at step 0 the model), or the worker shuts down
        and the bucket is away. Training goes on once the files are written: they are hashed and forced to the disk behind it.
        """
        if self.state.step == self._saved_step:
            return
        self.show("checkpoint", 0, 1)
        if self._unfinished is not None:
            self.reporter.wait()  # one checkpoint is written at a time
        # in rounds, since processes wait for each other no longer than their patience
        while self._trained.ranks.any(not self.reporter.wait_for_uploads()):
            if self._trained.ranks.of_first(self._channels.shutting_down()):
                return  # the next attempt begins from one that is in the bucket, as this one's log says
        timed = replace(self.state, elapsed_seconds=self.reporter.elapsed_seconds)
        folder = self._place.checkpoint(self.state.step)
        write_checkpoint(folder, self._trained, self._optimizer, timed, self._more())
        self._saved_step = self.state.step
        if not self._trained.ranks.first:
            return
        self._unfinished = folder

        def complete() -> Saved:
            saved = complete_checkpoint(folder)
            self._unfinished = None
            return saved

        self.reporter.checkpoint(self.state.step, complete)
