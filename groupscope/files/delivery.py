"""A run of files on its way into the backend: its attempts, and its reports in the order of their steps.

The run's key is made of the machine and the path, so a second import finds the run of the first. Each step's reports have numbers made of the
step's, so the same step sent again is the same message.
"""

import fcntl
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from pydantic import ValidationError

from backend.contract import protocol as p
from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.recorded import RecordedConfig, Trainer
from backend.contract.spool import may_pass
from groupscope.files.format import About, Unreadable
from groupscope.files.tally import Tally
from groupscope.samples import plain

P = ParamSpec("P")
T = TypeVar("T")

REPORTS_A_STEP = 2**20  # numbers that each step has for its reports
BEAT_SECONDS = 5.0  # between two heartbeats
MOST_WAITING = 2  # reports, while one is sent


@dataclass(frozen=True)
class Labels:
    """How the person wants the run to be called; else the files say."""

    name: str | None = None
    tags: Sequence[str] = ()


class Stopped(Exception):
    """Somebody stopped the record on the run's page."""

    def __init__(self) -> None:
        super().__init__("somebody stopped it on its page")


class Outdated(Exception):
    """The attempt has ended, or has this step in another form: the next one replaces it. None: no step has to be sent again."""

    def __init__(self, step: int | None) -> None:
        self.step = step


class Delivery:
    """The run of a path in the backend, and what is sent of it. Raises Unreadable, ApiError, Unreachable, Stopped and Outdated."""

    def __init__(
        self,
        client: Client,
        path: Path,
        about: About,
        labels: Labels,
        say: Callable[[str], None],
        patience: float,
        over: Callable[[], bool],
    ) -> None:
        """A backend that does not answer is waited for, `patience` seconds at most, and until it is `over`."""
        self._client, self._say, self._patience, self._over = client, say, patience, over
        config = _config(path, about)
        self.weights = {one.name: one.weight for one in config.rewards.functions}
        self._worker = f"import on {socket.gethostname()}, process {os.getpid()}"[:200]
        self._path = path.resolve()
        self._recording = p.Recording(
            key=self._key(1),
            worker=self._worker,
            config=config,
            name=(labels.name or about.name)[:200],
            notes=f"Imported from {self._path}",
            tags=list(labels.tags),
        )
        self.tally = Tally()
        self._held: int | None = None
        self._attempt = 0
        self._measured: dict[str, set[int]] = {}  # steps that have a metric, of those that come late
        self._last_beat = 0.0
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="groupscope-import")
        self._sending: deque[Future[None]] = deque()

    def _key(self, attempt: int) -> str:
        return sha256(f"{socket.gethostname()}\n{self._path}\n{attempt}".encode(errors="surrogateescape")).hexdigest()[
            :32
        ]

    # ---- the run and its attempts

    def begin(self, from_step: int | None = None) -> int:
        """Find or make the run: the step from which it goes on, which is the newest that is recorded, or `from_step`, which is recorded anew."""
        self._lock()
        run_id = self.tally.run_id = self._client.record(self._recording).run_id
        run = self._ask(self._client.run, run_id)
        self._attempt = run.attempt
        if from_step is not None:
            self.next_attempt(from_step)
            return from_step
        if run.attempt == 1 and not run.progress.step:
            if run.status == "running":
                self._ask(self._client.start, run_id, self._start(0))
            else:
                self.next_attempt(0)
            return 0
        if run.attempt > 1:
            self._record(run.attempt)
        return max(0, run.progress.step - 1)

    def _lock(self) -> None:
        """Hold the path itself, as long as this process imports it; on a disk without locks nobody is kept away."""
        self._held = os.open(self._path, os.O_RDONLY)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unreadable(
                f"{self._path} is being imported by another process: leave it to that one, or end it"
            ) from None
        except OSError:
            pass

    def next_attempt(self, step: int) -> None:
        """Begin another attempt, which replaces what is recorded from this step on."""
        self._record(self._attempt + 1)
        self._ask(self._client.start, self.tally.run_id, self._start(step))
        self._measured.clear()
        self.tally.forget(step)

    def _record(self, attempt: int) -> None:
        asked = self._recording.model_copy(update={"key": self._key(attempt), "run_id": self.tally.run_id})
        self._attempt = self._ask(self._client.record, asked).attempt

    def _start(self, step: int) -> p.Start:
        return p.Start(attempt=self._attempt, from_step=step, device="")

    def finish(self, outcome: Literal["finished", "stopped"] = "finished") -> None:
        """The files have no more, for now."""
        try:
            self._ask(self._client.finish, self.tally.run_id, p.Finish(attempt=self._attempt, outcome=outcome))
        except ApiError as error:
            if error.code != "lease_lost":  # nothing was new: the run had ended before
                raise

    def beat(self) -> None:
        """Tell the backend from time to time that the import goes on. Raises Stopped if somebody wants it to end."""
        if time.monotonic() - self._last_beat < BEAT_SECONDS:
            return
        self._last_beat = time.monotonic()
        try:
            reply = self._client.heartbeat(self.tally.run_id, p.Heartbeat(attempt=self._attempt, worker=self._worker))
        except (ApiError, Unreachable):
            return  # the next report says what is the matter
        if reply.requested == "stop":
            self.finish("stopped")
            raise Stopped

    def _ask(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the backend answers; one that is away or in trouble is asked again for a while."""
        began, wait = time.monotonic(), 0.1
        while True:
            try:
                return call(*args, **kwargs)
            except (Unreachable, ApiError) as error:
                passes = isinstance(error, Unreachable) or (may_pass(error) and error.status not in (401, 403))
                if not passes or self._over() or time.monotonic() - began > self._patience:
                    raise
                if wait == 0.1:
                    self._say(f"{error}; trying again")
            time.sleep(wait)
            wait = min(2 * wait, 2.0)

    def close(self) -> None:
        """Forget what waits to be sent."""
        self._sender.shutdown(wait=True, cancel_futures=True)
        if self._held is not None:
            os.close(self._held)
            self._held = None

    # ---- its reports

    def report(self, step: int, place: int, **what: Any) -> p.Report:
        """The report of a step that stands at this place among those of the step."""
        return p.Report(attempt=self._attempt, seq=step * REPORTS_A_STEP + place, step=step, **what)

    def send(self, report: p.Report) -> None:
        """Have a report sent after those before it. Raises what went wrong with one of these."""
        self.beat()
        self.wait(MOST_WAITING)
        self._sending.append(self._sender.submit(self._deliver, report))

    def _deliver(self, report: p.Report) -> None:
        try:
            answer = self._ask(self._client.report, self.tally.run_id, report)
        except ApiError as error:
            if error.code in ("lease_lost", "report_conflict", "conflict"):
                raise Outdated(None if report.late else report.seq // REPORTS_A_STEP) from error
            raise
        if not answer.duplicate:
            self.tally.add(report.seq // REPORTS_A_STEP, report)

    def wait(self, most: int = 0) -> None:
        """Wait until at most this number of reports are on their way. Raises what went wrong with one."""
        while len(self._sending) > most:
            self._sending.popleft().result()

    def give_up(self) -> list[int | None]:
        """Forget what is on its way; the steps that were refused."""
        ended = [self._sending.popleft().exception() for _ in range(len(self._sending))]
        return [error.step for error in ended if isinstance(error, Outdated)]

    def steps_with(self, name: str) -> set[int]:
        """The steps of the run that have a metric. Add those to which it is sent."""
        if name not in self._measured:
            series = self._ask(partial(self._client.metrics, names=[name]), self.tally.run_id).series.get(name)
            self._measured[name] = set(series.step if series is not None else ())
        return self._measured[name]


def _config(path: Path, about: About) -> RecordedConfig:
    """The run's configuration. Raises Unreadable if the files say something that has no place in it."""
    try:
        trainer = Trainer(name=about.trainer, version=about.version)
        return RecordedConfig.model_validate({"trainer": trainer, "theirs": plain(about.config), **about.known})
    except (ValidationError, TypeError, ValueError) as error:
        why = str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise Unreadable(f"{path} describes a run that cannot be recorded: {why}") from None
