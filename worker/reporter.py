"""What a training attempt tells the backend: its start, numbered reports, log lines, checkpoints, sent beside the next steps."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from types import TracebackType
from typing import Literal

from backend.contract.base import Json, finite
from backend.contract.groups import GroupReport
from backend.contract.pairs import PairReport
from backend.contract.protocol import CheckpointReport, Finish, LogLine, Report, Start, TraceFile
from backend.contract.records import Progress, Requested, RewardText
from backend.contract.replay import Replayed
from backend.contract.report_parts import in_parts
from worker.checkpoint import Saved
from worker.errors import Interrupted
from worker.store import Show, Store
from worker.uploads import MOST_WAITING as MOST_UPLOADS
from worker.uploads import ROUND_SECONDS, Uploads

log = logging.getLogger(__name__)

Ending = Literal["finished", "stopped", "paused", "released"]
Level = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Channels:
    """How a trainer tells what it does and learns what is asked of it. Any of these may raise to end the run."""

    send: Callable[[str, Start | Report | CheckpointReport | Finish], None]
    show: Callable[[Progress], None]  # also checks that the run is still ours
    requested: Callable[[], Requested]
    between_steps: Callable[[], None]  # a busy worker serves samples here
    shutting_down: Callable[[], bool]
    # The seconds of each phase of a finished step in which this process did not wait for others.
    worked: Callable[[Mapping[str, float]], None] = lambda seconds: None

    def load(self, what: str, steps: int) -> None:
        """Say what is loaded now, before the first step. Raises Interrupted if the run or the worker was asked to end."""
        self.show_or_end(Progress(total_steps=steps, phase=f"loading the {what}"))

    def fetching(self, steps: int) -> Show:
        """Says what is fetched before the first step; raises as `load` does."""

        def show(phase: str, done: int, total: int) -> None:
            self.show_or_end(Progress(total_steps=steps, phase=phase, done=done, total=total))

        return show

    def show_or_end(self, progress: Progress) -> None:
        """Show it where nothing is lost by leaving. Raises Interrupted if the run or the worker was asked to end."""
        ending = asked_to_end(self.requested(), self.shutting_down())
        if ending is not None:
            raise Interrupted(ending)
        self.show(progress)


def asked_to_end(requested: Requested, shutting_down: bool) -> Literal["stopped", "paused", "released"] | None:
    """How an attempt should end, if it should."""
    if requested == "nothing":
        return "released" if shutting_down else None
    return "paused" if requested == "pause" else "stopped"


@dataclass(frozen=True)
class Place:
    """Where the attempt stands in the world."""

    run_id: int
    attempt: int
    store: Store
    store_name: str
    resume: Path | None  # a whole checkpoint of this run, or what a fork begins from
    device_name: str
    versions: dict[str, str]
    model_commit: str | None = None  # of a Hub model, from which the run's first attempt began
    remarks: Sequence[str] = ()  # what the run's log should say of how it came there
    reward_texts: Sequence[RewardText] = ()  # the files of a person's own that score
    trunk_config: Mapping[str, Json] | None = None  # of the run from whose state a fork begins

    @property
    def begins_elsewhere(self) -> bool:
        """Whether this is a fork that has no checkpoint of its own yet."""
        return self.resume is None or self.resume.parent != self.folder

    @property
    def of_trunk(self) -> Mapping[str, Json] | None:
        """The configuration of the run whose checkpoint this is, if that is another run: the one that this is a fork of."""
        return self.trunk_config if self.begins_elsewhere else None

    @property
    def folder(self) -> Path:
        """Where the run keeps what it leaves."""
        return self.store.folder / f"run-{self.run_id}"

    @property
    def repeated(self) -> Path:
        """Where a fork's worker keeps the state that it reached by doing the trunk's last steps again, until the trainer has it."""
        return self.folder / f".trunk-attempt-{self.attempt}.partial"

    def checkpoint(self, step: int) -> Path:
        """Where checkpoint `step` of this attempt lies."""
        return self.folder / f"step-{step}-attempt-{self.attempt}"


@dataclass
class StepContent:
    """What a step's report says."""

    metrics: Mapping[str, float]
    groups: list[GroupReport] = field(default_factory=list)
    pairs: list[PairReport] = field(default_factory=list)
    trace: TraceFile | None = None
    replayed: Replayed | None = None
    warnings: list[str] = field(default_factory=list)


Task = Callable[[], None]

MOST_WAITING = 4
"""The most tasks that may wait; beyond that, `put` blocks. A step brings two or three."""


class Background:
    """Does what it is given, while it is entered. After a task that raised, no other is done; the next caller gets its error.

    Leaving the context waits for the tasks to be done. The caller's own exception wins over a task's.
    """

    def __init__(self, name: str) -> None:
        self._tasks: Queue[Task | None] = Queue(MOST_WAITING)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def __enter__(self) -> "Background":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._tasks.put(None)
        self._thread.join()
        if error is None:
            self.check()
        elif self._error is not None and self._error is not error:
            log.error("a task that was still waiting failed, too", exc_info=self._error)

    def put(self, task: Task) -> None:
        """Have a task done after those before it. Raises the error of one of them."""
        self.check()
        self._tasks.put(task)

    def wait(self) -> None:
        """Until all is done. Raises the error of a task."""
        self.join()
        self.check()

    def join(self) -> None:
        """Until all is done, or was not because of an error."""
        self._tasks.join()

    def check(self) -> None:
        """Raises the error of a task."""
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while self._do(self._tasks.get()):
            self._tasks.task_done()

    def _do(self, task: Task | None) -> bool:
        """False if there are no further tasks. A function of its own, so that nothing of a task is kept while the next is awaited."""
        if task is None:
            return False
        if self._error is None:
            try:
                task()
            except Exception as error:  # noqa: BLE001 — the boundary of a thread: the next caller gets it
                self._error = error
        return True


class Reporter:
    """Speaks for one attempt, while it is entered; `elapsed` is what earlier attempts trained, in seconds.

    Reports are put together and sent in order by a background thread; leaving waits for them. What goes wrong there is raised
    by the next call.
    """

    def __init__(
        self, place: Place, channels: Channels, *, total_steps: int, elapsed: float, interruptible: bool = True
    ) -> None:
        self._place, self._channels, self._total_steps = place, channels, total_steps
        self._interruptible = interruptible
        self._background = Background(f"report-{place.run_id}")
        self._began = time.monotonic() - elapsed
        self._seq = self._step = 0
        self._uploads: Uploads | None = None

    def __enter__(self) -> "Reporter":
        self._background.__enter__()
        if self._place.store.bucket is not None:
            self._uploads = Uploads(self._place.store, self._register, self.log)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if self._uploads is not None:
                self._leave(self._uploads, failed=error is not None)
        finally:
            self._background.__exit__(kind, error, at)

    def _leave(self, uploads: Uploads, *, failed: bool) -> None:
        """Wait until the bucket has all checkpoints; for a while only if the worker shuts down, or the run failed."""
        try:
            self._background.join()  # it brings the last one
            whole = uploads.wait(self._show_upload, hurried=lambda: failed or self._channels.shutting_down())
            if not failed:
                uploads.check()
            if not whole:
                text = "this worker ended before its newest checkpoint was in the bucket: the run goes on from an earlier one"
                self.log("warning", text)
        finally:
            uploads.leave()

    def _show_upload(self, done: int, total: int) -> None:
        shown = Progress(step=self._step, total_steps=self._total_steps, phase="checkpoint", done=done, total=total)
        self._channels.show(shown)

    @property
    def elapsed_seconds(self) -> float:
        """Trained so far, in all attempts."""
        return time.monotonic() - self._began

    def start(self, from_step: int, about: str) -> None:
        """Say where the attempt begins, and in the log on what."""
        place = self._place
        start = Start(
            attempt=place.attempt,
            from_step=from_step,
            device=place.device_name,
            versions=place.versions,
            model_commit=place.model_commit,
            reward_texts=list(place.reward_texts),
        )
        self._background.put(lambda: self._channels.send("start", start))
        for remark in place.remarks:
            self.log("warning", remark)
        begun = f"resumed from checkpoint {from_step}" if place.resume else "started from the model's initial weights"
        if place.resume is not None and place.resume.parent == place.repeated:
            begun = f"went on from step {from_step} of the trunk, whose steps up to there were done again,"
        self.log("info", f"{begun} on {place.device_name}: {about}")

    def step(self, step: int, describe: Callable[[], StepContent]) -> None:
        """Report a training step. `describe` is called in the background: what it reads must not change any more."""

        def contents() -> dict[str, object]:
            content = describe()
            return {
                "step": step,
                "metrics": {name: finite(value) for name, value in content.metrics.items()},
                "groups": content.groups,
                "pairs": content.pairs,
                "trace": content.trace,
                "replayed": content.replayed,
                "logs": [self._line("warning", message) for message in content.warnings],
            }

        self._later(contents)

    def metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report what has metrics alone: an evaluation after `step` steps."""
        self.step(step, lambda: StepContent(metrics))

    def log(self, level: Level, message: str) -> None:
        """A line for the run's log, and for the worker's."""
        line = self._line(level, message)
        self._later(lambda: {"logs": [line]})

    def checkpoint(self, step: int, complete: Callable[[], Saved]) -> None:
        """Register a checkpoint after the reports below it; `complete` makes it whole, in the background.

        If there is a bucket, it is registered once it is there.
        """
        register = self._register if self._uploads is None else self._uploads.add
        self._step = step
        self._background.put(lambda: register(step, complete()))

    def _register(self, step: int, saved: Saved) -> None:
        place = self._place
        registered = CheckpointReport(
            attempt=place.attempt,
            step=step,
            store=place.store_name,
            path=str(saved.folder.relative_to(place.store.folder)),
            sha256=saved.sha256,
            size_bytes=saved.size_bytes,
        )
        self._channels.send("checkpoint", registered)

    def wait(self) -> None:
        """Wait until every report has been sent."""
        self._background.wait()

    def wait_for_uploads(self) -> bool:
        """Wait a while for room for one more checkpoint among those that wait for the bucket; whether there is some."""
        if self._uploads is None:
            return True
        room = self._uploads.wait(self._show_upload, most=MOST_UPLOADS - 1, hurried=lambda: True, seconds=ROUND_SECONDS)
        self._uploads.check()
        return room

    def show(self, step: int, phase: str, done: int, total: int) -> None:
        """Progress inside a step. Raises Interrupted when the worker shuts down and the weights are untouched, if it is interruptible."""
        if self._interruptible and phase not in ("update", "checkpoint") and self._channels.shutting_down():
            raise Interrupted
        self._channels.show(Progress(step=step, total_steps=self._total_steps, phase=phase, done=done, total=total))

    def asked_to_end(self) -> Ending | None:
        """How the run should end at this step boundary, if it should. Raises what went wrong in the background."""
        self._background.check()
        if self._uploads is not None:
            self._uploads.check()
        return asked_to_end(self._channels.requested(), self._channels.shutting_down())

    def _later(self, contents: Callable[[], dict[str, object]]) -> None:
        """Have a report sent, in parts if it is large; its number is its place in the order, its time is now."""
        seconds = self.elapsed_seconds

        def report() -> None:
            numbered = {"attempt": self._place.attempt, "seq": self._seq, "seconds": seconds, **contents()}
            for part in in_parts(Report.model_validate(numbered)):
                self._seq += 1
                self._channels.send("report", part)

        self._background.put(report)

    def _line(self, level: Level, message: str) -> LogLine:
        getattr(log, level)("run %s: %s", self._place.run_id, message)
        return LogLine(level=level, message=message)
