"""Records what a format reads as a run, again and again without doubling: `groupscope import`.

The run's key is made of the machine and the path, so a second import finds the run of the first. Each step's reports have numbers made of the
step's, so the same step sent again is the same message, and the newest one is sent again each time. Should it have grown since, or
the run have ended, the next attempt of the run takes it up from there.
"""

import fcntl
import math
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, Literal, ParamSpec, TypeVar

from pydantic import ValidationError

from backend.contract import protocol as p
from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.foreign_metrics import in_our_names
from backend.contract.groups import GroupReport
from backend.contract.recorded import RecordedConfig, Trainer
from backend.contract.report_parts import in_parts
from backend.contract.spool import may_pass
from groupscope.files.catalog import find, nothing_at
from groupscope.files.format import About, Format, Options, Run, Step, Unreadable, number
from groupscope.recording import LONGEST_NAME, Group, group_report
from groupscope.tokens import Tokens, trace_of

P = ParamSpec("P")
T = TypeVar("T")

REPORTS_A_STEP = 2**20  # numbers that each step has for its reports
LAST_STEP = 2**40  # whose reports still have numbers of 63 bits
PIECE = 2**24  # characters of completions that are sent before the rest of their step is known
SETTLED = 0.7  # seconds without a change, after which a step counts as whole
OPEN = 5.0  # the same, for one of which more may come; twice as long each time that more did
SHOWN_LINES = 20  # of those that cannot be read, in the log of a step
TICK = 0.3  # seconds between two looks at files that are followed
ANYWAY = 10.0  # seconds after which files are read again that look unchanged
RARELY = 20  # times as long as something takes that is repeated without need, until it is done again
LOOK_FOR_NEW = 2.0  # the same, for runs that were not there before
BEAT = 5.0  # seconds between two words to the backend
PATIENCE = 120.0  # seconds for a backend that does not answer, unless files are followed
MOST_ATTEMPTS = 3  # that one look at the files may take
OF_REWARDS = ("reward", "reward_std", "frac_reward_zero_std")  # metrics that are made of the groups' rewards
MOST_METRICS = p.MOST_METRICS - 100  # of a step's own; some get a second name
AHEAD = 2  # reports that wait while one is sent


@dataclass
class Tally:
    """What an import brought that was not recorded before, and the lines that it could not read."""

    run_id: int = 0
    brought: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """By step: whether it is whole, how many groups, and how many completions."""
    unreadable: dict[int, tuple[int, list[str]]] = field(default_factory=dict)
    """By step how many lines, and the first of them."""

    @property
    def steps(self) -> int:
        """Those that are whole."""
        return self._sum(0)

    @property
    def groups(self) -> int:
        """Of all steps."""
        return self._sum(1)

    @property
    def completions(self) -> int:
        """Of all steps."""
        return self._sum(2)

    def _sum(self, place: int) -> int:
        return sum(one[place] for one in list(self.brought.values()))  # to which another thread adds

    def add(self, step: int, report: p.Report) -> None:
        """What a report brought of a step."""
        steps, groups, completions = self.brought.get(step, (0, 0, 0))
        self.brought[step] = (
            steps + (report.trained_step is not None),
            groups + len(report.groups),
            completions + sum(len(one.completions) for one in report.groups),
        )

    def forget(self, first: int) -> None:
        """The steps from this one on: they come again."""
        self.brought = {step: one for step, one in self.brought.items() if step < first}
        self.unreadable = {step: one for step, one in self.unreadable.items() if step < first}

    def told(self) -> str:
        """In a sentence, with the lines that could not be read."""
        new = f"{_counted(self.steps, 'step')}, {_counted(self.groups, 'group')}, {_counted(self.completions, 'completion')}"
        said = [f"run {self.run_id}: {new if self.steps or self.groups else 'nothing new'}"]
        if count := sum(count for count, _ in self.unreadable.values()):
            said[0] += f"; {_counted(count, 'line')} could not be read:"
            first = [line for _, lines in self.unreadable.values() for line in lines][:SHOWN_LINES]
            said += [*(f"  {line}" for line in first), *(["  …"] if count > len(first) else [])]
        return "\n".join(said)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' if count != 1 else ''}"


@dataclass(frozen=True)
class Labels:
    """How the person wants the run to be called; else the files say."""

    name: str | None = None
    tags: Sequence[str] = ()


class Stopped(Exception):
    """Somebody stopped the record on the run's page."""

    def __init__(self) -> None:
        super().__init__("somebody stopped it on its page")


class _Outdated(Exception):
    """The attempt has ended, or has this step in another form: the next one takes it up. None: it has no step that is to be sent again."""

    def __init__(self, step: int | None) -> None:
        self.step = step


@dataclass
class _Gathered:
    """What the files have of a step, as far as it is not sent."""

    step: int
    marks: list[int] = field(
        default_factory=list
    )  # of each group, with those that were sent before: another one if it grew
    completions: int = 0
    waiting: list[tuple[int, Group]] = field(default_factory=list)  # by index
    size: int = 0  # characters of these
    metrics: dict[str, float | None] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    seconds: float | None = None
    open: bool = False
    totals: list[list[float]] = field(default_factory=list)  # of each group that was trained on, those that it has

    @property
    def mark(self) -> tuple[int, ...]:
        """Another one if anything came to the step."""
        return self.step, len(self.marks), self.completions, len(self.metrics), len(self.unreadable)

    def add(self, piece: Step, sent: int) -> None:
        """A piece of the step, of whose groups the first were sent."""
        for name, value in piece.metrics.items():
            if 0 < len(name) <= LONGEST_NAME and len(self.metrics) < MOST_METRICS:
                self.metrics[name] = value
        self.unreadable += piece.unreadable
        self.seconds = piece.seconds if piece.seconds is not None else self.seconds
        self.open = piece.open
        for group in piece.groups:
            if len(self.marks) >= sent:
                self.waiting.append((len(self.marks), group))
                self.size += sum(len(one.text) + sum(len(turn.text) for turn in one.turns) for one in group.completions)
            self.marks.append(hash((group.prompt, group.evaluated, len(group.completions))))
            self.completions += len(group.completions)
            if not group.evaluated:
                self.totals.append([value for one in group.completions if (value := number(one.reward)) is not None])

    def of_rewards(self) -> dict[str, float | None]:
        """What the groups' rewards say of the step, under TRL's names; nothing if no total is known."""
        known = [value for totals in self.totals for value in totals]
        several = [totals for totals in self.totals if len(totals) > 1]
        if not known or not several:
            return {}
        dead = sum(len(set(totals)) == 1 for totals in several) / len(several)
        return dict(zip(OF_REWARDS, (fmean(known), pstdev(known), dead), strict=True))


class Import:
    """One run on the disk, on its way into the backend. Raises Unreadable, ApiError, Unreachable, and Stopped.

    `begin` finds or makes the run; `advance` sends what is new, as often as one likes; `finish` ends the run.
    """

    def __init__(
        self,
        client: Client,
        path: Path,
        files: Run,
        labels: Labels,
        say: Callable[[str], None],
        patience: float,
        over: Callable[[], bool],
    ) -> None:
        """A backend that does not answer is waited for, `patience` seconds at most, and until it is `over`."""
        self._client, self._files = client, files
        self._say, self._patience, self._over = say, patience, over
        about, config = files.about, _config(path, files.about)
        self._weights = {one.name: one.weight for one in config.rewards.functions}
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
        self._next = 0  # the first step that is not known to be whole
        self._sent: list[int] = []  # the marks of those of its groups that were sent
        self._sent_parts = 0  # in how many reports
        self._left_out: list[str] = []  # groups and token values of this step that no report can have, and why
        self._completed: tuple[int, ...] = ()  # the mark of the newest step that was sent
        self._evaluated = (-1, 0)  # the step whose evaluation was sent, and with how many metrics
        self._seen: tuple[int, ...] = ()  # that of the newest at the last look
        self._still_since = 0.0
        self._open_for = OPEN
        self._stamp = self._stamp_at = self._look_at = (
            0.0  # of the files at the last look, and when the next ones may be
        )
        self._measured: dict[str, set[int]] = {}  # steps that have a metric, of those that come late
        self._late: dict[int, Step] = {}  # what came of earlier steps
        self._heard = 0.0
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="groupscope-import")
        self._sending: deque[Future[None]] = deque()

    def _key(self, attempt: int) -> str:
        return sha256(f"{socket.gethostname()}\n{self._path}\n{attempt}".encode(errors="surrogateescape")).hexdigest()[
            :32
        ]

    # ---- the run

    def begin(self, from_step: int | None = None) -> None:
        """The run of this path, and the step from which it goes on: the newest that is recorded, or `from_step`, which is recorded anew."""
        self._lock()
        run_id = self.tally.run_id = self._client.record(self._recording).run_id
        run = self._ask(self._client.run, run_id)
        self._attempt = run.attempt
        if from_step is not None:
            self._take_up(from_step)
        elif run.attempt == 1 and not run.progress.step:
            self._ask(self._client.start, run_id, self._start(0)) if run.status == "running" else self._take_up(0)
        else:
            if run.attempt > 1:
                self._record(run.attempt)
            self._next = max(0, run.progress.step - 1)

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

    def _take_up(self, step: int) -> None:
        """The next attempt, which replaces what is recorded from this step on."""
        self._record(self._attempt + 1)
        self._ask(self._client.start, self.tally.run_id, self._start(step))
        self._next, self._completed, self._evaluated = step, (), (-1, 0)
        self._sent, self._sent_parts, self._left_out = [], 0, []
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
        if time.monotonic() - self._heard < BEAT:
            return
        self._heard = time.monotonic()
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

    # ---- its steps

    def advance(self, *, final: bool, on_progress: Callable[[int], None] = lambda step: None) -> None:
        """Send what is new. Unless this is `final`, the newest step is sent once it has not changed for a while, and files that have not
        changed are not read again while nothing waits.
        """
        began = time.monotonic()
        if not final and began < self._stamp_at:
            return
        stamp = _stamp(self._path)
        self._stamp_at = time.monotonic() + RARELY * (time.monotonic() - began)
        if not final and stamp == self._stamp and began < self._look_at:
            return
        start = self._next
        for attempt in count(1):
            try:
                look_at = self._look(final, on_progress)
                self._drain(0)
            except _Outdated as outdated:
                lost = [outdated.step, *self._give_up_sending()]
                if attempt > MOST_ATTEMPTS and isinstance(outdated.__cause__, ApiError):
                    raise outdated.__cause__ from None
                self._take_up(min([one for one in lost if one is not None], default=start))
            else:
                self._late.clear()
                self._open_for *= 2 if attempt > 1 else 1
                now = time.monotonic()
                self._stamp, self._look_at = stamp, min(look_at, now + max(ANYWAY, RARELY * (now - began)))
                return

    def _look(self, final: bool, on_progress: Callable[[int], None]) -> float:
        """Send what can be sent. The monotonic time from which on more can be, though nothing comes."""
        newest: _Gathered | None = None
        for late in self._late.values():
            self._send_late(late)
        for piece in self._files.steps(self._next, final=final):
            if not 0 <= piece.step <= LAST_STEP:
                raise Unreadable(f"a step has the number {piece.step:,}, and 0 to {LAST_STEP:,} are expected")
            if piece.step < self._next:
                self._late[piece.step] = piece
                self._send_late(piece)
                continue
            if newest is not None and piece.step != newest.step:
                self._complete(newest)
                on_progress(newest.step)
                newest = None
            newest = newest or _Gathered(piece.step)
            newest.add(piece, self._sent_of(piece.step))
            if newest.size > PIECE:
                self._send_part(newest)
        if newest is None:
            return math.inf
        if newest.mark != self._seen:
            self._seen, self._still_since = newest.mark, time.monotonic()
        on_progress(newest.step)
        if newest.mark == self._completed:
            return math.inf
        still = time.monotonic() - self._still_since
        has_tokens = any(one.tokens for _, group in newest.waiting for one in group.completions)
        in_one = has_tokens or self._completed[:1] == (newest.step,) or self._has_changed(newest)
        whole = not newest.open or (in_one and still >= self._open_for)
        if final or (whole and still >= SETTLED):
            self._complete(newest)
            return math.inf
        if still < SETTLED:
            return self._still_since + SETTLED
        self._send_evaluation(newest)
        if in_one:  # values of tokens belong to the whole step, and what was sent is replaced as a whole
            return self._still_since + self._open_for
        self._send_part(newest)
        return math.inf

    def _complete(self, gathered: _Gathered) -> None:
        """Send the step, its evaluation first. Raises _Outdated if it was sent, and has grown since."""
        if self._was_completed(gathered):
            return
        self._send_evaluation(gathered)
        of_training = {name: value for name, value in gathered.metrics.items() if not name.startswith(p.EVALUATION)}
        of_training = gathered.of_rewards() | in_our_names(of_training) | of_training  # the trainer's own word counts
        groups, trace = self._reports(gathered)
        report = self._report(gathered, 1 + self._parts_of(gathered), metrics=of_training, groups=groups, trace=trace)
        wrong = [*gathered.unreadable, *self._left_out]
        report = report.model_copy(update={"seconds": gathered.seconds, "logs": _lines(gathered.step, wrong)})
        if not groups and not of_training:
            report = report.model_copy(update={"step": None})
        if groups or of_training or report.logs:
            for part in in_parts(report):
                self._send(part)
        if wrong:
            self.tally.unreadable[gathered.step] = len(wrong), wrong[:SHOWN_LINES]
        self._next, self._completed = gathered.step, gathered.mark
        self._sent, self._sent_parts, self._left_out = [], 0, []

    def _send_evaluation(self, gathered: _Gathered) -> None:
        """Send the metrics of the evaluation before the step, which completes nothing."""
        values = {name: value for name, value in gathered.metrics.items() if name.startswith(p.EVALUATION)}
        if values and self._evaluated != (gathered.step, len(values)):
            self._send(self._report(gathered, 0, metrics=values | in_our_names(values)))
            self._evaluated = gathered.step, len(values)

    def _send_part(self, gathered: _Gathered) -> None:
        """Send the groups that wait, before the rest of their step is known."""
        if self._was_completed(gathered):
            return
        groups, trace = self._reports(gathered)
        if trace is not None:
            self._left_out.append(
                f"step {gathered.step} is too large for one report: token values of {len(groups)} groups"
            )
        parts = self._parts_of(gathered)
        for report in in_parts(self._report(gathered, 1 + parts, groups=groups)) if groups else ():
            self._left_out += [line.message for line in report.logs]
            self._send(report.model_copy(update={"part": True, "logs": []}))
            parts += 1
        self._next, self._sent, self._sent_parts = gathered.step, list(gathered.marks), parts
        gathered.waiting, gathered.size = [], 0

    def _send_late(self, piece: Step) -> None:
        """Metrics that became known after their step was sent, those of its evaluation apart."""
        for place, evaluated in ((1, False), (2, True)):
            values = {name: one for name, one in piece.metrics.items() if name.startswith(p.EVALUATION) == evaluated}
            name = next((one for one in values if one not in OF_REWARDS), None)
            if name is None or piece.step in self._steps_with(name):
                continue
            self._steps_with(name).add(piece.step)
            seq = (piece.step + 1) * REPORTS_A_STEP - place
            self._send(
                p.Report(
                    attempt=self._attempt, seq=seq, step=piece.step, metrics=values | in_our_names(values), late=True
                )
            )

    def _steps_with(self, name: str) -> set[int]:
        """The steps of the run that have a metric."""
        if name not in self._measured:
            series = self._ask(partial(self._client.metrics, names=[name]), self.tally.run_id).series.get(name)
            self._measured[name] = set(series.step if series is not None else ())
        return self._measured[name]

    def _has_changed(self, gathered: _Gathered) -> bool:
        """Whether groups that were sent of a step have grown since, or others stand in their places."""
        return gathered.step == self._next and gathered.marks[: len(self._sent)] != self._sent

    def _was_completed(self, gathered: _Gathered) -> bool:
        if self._completed[:1] != (gathered.step,):
            if self._has_changed(gathered):
                raise _Outdated(gathered.step)
            return False
        if self._completed != gathered.mark:
            raise _Outdated(gathered.step)
        return True

    def _sent_of(self, step: int) -> int:
        """How many of the step's groups need not be kept. Of a completed step none need: if others came, it is read again."""
        if self._completed[:1] == (step,):
            return sys.maxsize
        return len(self._sent) if step == self._next else 0

    def _parts_of(self, gathered: _Gathered) -> int:
        return self._sent_parts if gathered.step == self._next else 0

    def _reports(self, gathered: _Gathered) -> tuple[list[GroupReport], p.TraceFile | None]:
        """The groups that wait as the protocol has them, with the values of their tokens."""
        groups: list[GroupReport] = []
        tokens: list[list[Tokens | None]] = [[] for _ in gathered.marks]  # by the group's index
        for index, group in gathered.waiting:
            try:
                checked = [None if one.tokens is None else one.tokens.checked() for one in group.completions]
                groups.append(group_report(index, group, checked, self._weights))
                tokens[index] = checked
            except Exception as error:  # noqa: BLE001 — whatever a file says, its other groups are kept
                self._left_out.append(f"group {index} of step {gathered.step}: {error}")
        try:
            return groups, trace_of(tokens)
        except Exception as error:  # noqa: BLE001 — the groups count without the values of their tokens
            self._left_out.append(f"token values of step {gathered.step}: {error}")
            return groups, None

    def _report(self, gathered: _Gathered, place: int, **what: Any) -> p.Report:
        seq = gathered.step * REPORTS_A_STEP + place
        return p.Report(attempt=self._attempt, seq=seq, step=gathered.step, **what)

    # ---- on their way, in the order of the steps

    def _send(self, report: p.Report) -> None:
        self.beat()
        self._drain(AHEAD)
        self._sending.append(self._sender.submit(self._deliver, report))

    def _deliver(self, report: p.Report) -> None:
        try:
            answer = self._ask(self._client.report, self.tally.run_id, report)
        except ApiError as error:
            if error.code in ("lease_lost", "report_conflict", "conflict"):
                raise _Outdated(None if report.late else report.seq // REPORTS_A_STEP) from error
            raise
        if not answer.duplicate:
            self.tally.add(report.seq // REPORTS_A_STEP, report)

    def _drain(self, most: int) -> None:
        """Wait until at most this number of reports are on their way. Raises what went wrong with one."""
        while len(self._sending) > most:
            self._sending.popleft().result()

    def _give_up_sending(self) -> list[int | None]:
        """Forget what is on its way; the steps that were refused."""
        ended = [self._sending.popleft().exception() for _ in range(len(self._sending))]
        return [error.step for error in ended if isinstance(error, _Outdated)]


def _config(path: Path, about: About) -> RecordedConfig:
    """The run's configuration. Raises Unreadable if the files say something that has no place in it."""
    try:
        trainer = Trainer(name=about.trainer, version=about.version)
        return RecordedConfig.model_validate({"trainer": trainer, "theirs": dict(about.config), **about.known})
    except (ValidationError, TypeError, ValueError) as error:
        why = str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise Unreadable(f"{path} describes a run that cannot be recorded: {why}") from None


def _stamp(path: Path) -> int:
    """Another one once a file at the path came, grew or was written again."""

    def of(name: str) -> tuple[str, int, int]:
        try:
            found = os.stat(name)
        except OSError:
            return name, -1, 0
        return name, found.st_size, found.st_mtime_ns

    below = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return hash(frozenset(map(of, [os.fspath(path), *below])))


def _why(error: Exception) -> str:
    """In one sentence; of an error that nobody foresaw, its kind, too."""
    if isinstance(error, Stopped | Unreadable | ApiError):
        return str(error)
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


def _lines(step: int, lines: Sequence[str]) -> list[p.LogLine]:
    """What the run's log says of what a step lacks."""
    said = [f"left out: {line}" for line in lines[:SHOWN_LINES]]
    if len(lines) > SHOWN_LINES:
        said.append(f"left out: {len(lines) - SHOWN_LINES:,} further lines of step {step}")
    return [p.LogLine(level="warning", message=line) for line in said]


class Imports:
    """Every run at a path, one after the other; followed, all of them together, with those that appear later.

    `say` is given a line for each thing that happens, `show` the tally of the run that is being imported, several times a second.
    """

    def __init__(
        self,
        client: Client,
        path: Path,
        *,
        options: Options,
        labels: Labels,
        only: Format | None,
        from_step: int | None,
        say: Callable[[str], None],
        show: Callable[[Tally, int], None] = lambda tally, step: None,
    ) -> None:
        self._client, self._path, self._options, self._labels = client, path, options, labels
        self._only, self._from_step, self._say, self._show = only, from_step, say, show
        self._runs: dict[Path, Import | None] = {}  # None: it cannot be imported, or was stopped
        self._patience, self._over = PATIENCE, lambda: False
        self.failed = False

    def once(self) -> None:
        """Import what is there. Raises Unreadable if that is nothing, and ApiError and Unreachable."""
        for path, format_ in find(self._path, self._only):
            run = self._begun(path, format_)
            if run is not None:
                self._advance(path, run, final=True)
        if not self._runs:
            raise nothing_at(self._path)

    def follow(self, until: Callable[[], bool]) -> None:
        """Import what is there and what comes, until the person has enough. A backend that is away is waited for."""
        self._patience, self._over = math.inf, until
        look_at, said = 0.0, False
        while not until():
            try:
                if not self._runs or time.monotonic() >= look_at:
                    began = time.monotonic()
                    for path, format_ in find(self._path, self._only):
                        self._begun(path, format_)
                    if not self._runs and not said:
                        self._say(f"nothing can be imported from {self._path} yet; waiting")
                        said = True
                    look_at = time.monotonic() + max(LOOK_FOR_NEW, RARELY * (time.monotonic() - began))
                for path, run in self._runs.items():
                    if run is not None:
                        self._advance(path, run, final=False)
            except Unreachable as error:
                self._say(f"{error}; trying again")
                time.sleep(LOOK_FOR_NEW)
            time.sleep(TICK)
        for path, run in self._runs.items():
            if run is not None:
                self._advance(path, run, final=True)

    def _begun(self, path: Path, format_: Format) -> Import | None:
        if path in self._runs:
            return self._runs[path]
        run: Import | None = None
        try:
            files = format_.open(path, self._options)
            run = Import(self._client, path, files, self._labels, self._say, self._patience, self._over)
            run.begin(self._from_step)
        except Exception as error:  # what is wrong with one run does not end the others
            if run is not None:
                run.close()
            if isinstance(error, Unreachable) or (isinstance(error, ApiError) and may_pass(error)):
                raise  # it is not this run's matter
            self._runs[path] = None
            self.failed = True
            self._say(str(error) if isinstance(error, Unreadable) else f"{path} cannot be imported: {_why(error)}")
            return None
        self._say(f"{path} ({format_.name}) is run {run.tally.run_id}")
        self._runs[path] = run
        return run

    def _advance(self, path: Path, run: Import, *, final: bool) -> None:
        """Send what is new of a run, and if this is `final`, end it."""
        try:
            with closing(run) if final else nullcontext():
                run.advance(final=final, on_progress=lambda step: self._show(run.tally, step))
                run.beat()
                if final:
                    run.finish()
                    self._say(run.tally.told())
        except Unreachable:
            raise
        except Exception as error:  # noqa: BLE001 — what is wrong with one run does not end the others
            self._runs[path] = None
            self.failed = self.failed or not isinstance(error, Stopped)
            self._say(f"{run.tally.told()}\nrun {run.tally.run_id} is imported no further: {_why(error)}")
            run.close()
