"""What a training attempt tells the backend: its start, numbered reports, log lines, checkpoints."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from backend.contract.groups import GroupReport
from backend.contract.protocol import CheckpointReport, Finish, LogLine, Report, Start, TraceFile
from backend.contract.records import Progress, Requested
from worker.checkpoint import Saved
from worker.errors import Interrupted
from worker.group_records import finite

log = logging.getLogger(__name__)

Ending = Literal["finished", "stopped", "paused", "released"]


@dataclass(frozen=True)
class Channels:
    """How a trainer tells what it does and learns what is asked of it. Any of these may raise to end the run."""

    send: Callable[[str, Start | Report | CheckpointReport | Finish], None]
    show: Callable[[Progress], None]  # also checks that the run is still ours
    requested: Callable[[], Requested]
    between_steps: Callable[[], None]  # a busy worker serves samples here
    shutting_down: Callable[[], bool]


@dataclass(frozen=True)
class Place:
    """Where the attempt stands in the world."""

    run_id: int
    attempt: int
    store: Path
    store_name: str
    resume: Path | None  # a whole checkpoint of this run
    device_name: str
    versions: dict[str, str]

    @property
    def folder(self) -> Path:
        """Where the run keeps what it leaves."""
        return self.store / f"run-{self.run_id}"

    def checkpoint(self, step: int) -> Path:
        """Where checkpoint `step` of this attempt lies."""
        return self.folder / f"step-{step}-attempt-{self.attempt}"


class Reporter:
    """Speaks for one attempt. `elapsed` is what earlier attempts trained, in seconds."""

    def __init__(self, place: Place, channels: Channels, *, total_steps: int, elapsed: float) -> None:
        self._place, self._channels, self._total_steps = place, channels, total_steps
        self._began = time.monotonic() - elapsed
        self._seq = 0

    @property
    def elapsed_seconds(self) -> float:
        """Trained so far, in all attempts."""
        return time.monotonic() - self._began

    def start(self, from_step: int, about: str) -> None:
        """Say where the attempt begins, and in the log on what."""
        place = self._place
        self._channels.send(
            "start",
            Start(attempt=place.attempt, from_step=from_step, device=place.device_name, versions=place.versions),
        )
        begun = f"resumed from checkpoint {from_step}" if place.resume else "started from the model's own weights"
        self.log("info", f"{begun} on {place.device_name}: {about}")

    def step(
        self,
        step: int,
        metrics: Mapping[str, float],
        groups: Sequence[GroupReport] = (),
        trace: TraceFile | None = None,
    ) -> None:
        """Report a training step, or (without groups) an evaluation after `step` steps."""
        known = {name: finite(value) for name, value in metrics.items()}
        self._report(step=step, metrics=known, groups=list(groups), trace=trace)

    def log(self, level: Literal["info", "warning", "error"], message: str) -> None:
        """A line for the run's log, and for the worker's."""
        getattr(log, level)("run %s: %s", self._place.run_id, message)
        self._report(logs=[LogLine(level=level, message=message)])

    def checkpoint(self, step: int, saved: Saved) -> None:
        """Register a checkpoint that is whole."""
        self._channels.send(
            "checkpoint",
            CheckpointReport(
                attempt=self._place.attempt,
                step=step,
                store=self._place.store_name,
                path=str(saved.folder.relative_to(self._place.store)),
                sha256=saved.sha256,
                size_bytes=saved.size_bytes,
            ),
        )

    def show(self, step: int, phase: str, done: int, total: int) -> None:
        """Progress inside a step. Raises Interrupted when the worker shuts down and the weights are untouched."""
        if phase not in ("update", "checkpoint") and self._channels.shutting_down():
            raise Interrupted
        self._channels.show(Progress(step=step, total_steps=self._total_steps, phase=phase, done=done, total=total))

    def asked_to_end(self) -> Ending | None:
        """How the run should end at this step boundary, if it should."""
        requested = self._channels.requested()
        if requested == "pause":
            return "paused"
        if requested == "stop":
            return "stopped"
        return "released" if self._channels.shutting_down() else None

    def _report(self, **content: object) -> None:
        numbered = {"attempt": self._place.attempt, "seq": self._seq, "seconds": self.elapsed_seconds, **content}
        self._seq += 1
        self._channels.send("report", Report.model_validate(numbered))
