"""One run of files, imported step by step: which of its steps are new, whole, or have grown since they were sent.

The newest step is sent again each time. If it has grown since, or the run has ended, the next attempt of the run replaces it.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from backend.contract import protocol as p
from backend.contract.client import ApiError
from backend.contract.foreign_metrics import in_our_names
from backend.contract.report_parts import in_parts
from groupscope.files.delivery import REPORTS_A_STEP, Delivery, Outdated
from groupscope.files.format import MOST_STEPS, Run, Step
from groupscope.files.pending_step import OF_REWARDS, PendingStep
from groupscope.files.tally import SHOWN_LINES

PART_CHARACTERS = 2**24  # of completions that are sent before the rest of their step is known
SETTLED_SECONDS = 0.5  # without a change, after which a step counts as whole
OPEN_SECONDS = 5.0  # the same, for one of which more may come; twice as long each time that more did
REREAD_SECONDS = 10.0  # after which files are read again that look unchanged
PAUSE = 20  # times as long as something took that is repeated without need, until it is done again
MOST_ATTEMPTS = 3  # that one look at the files may take


class RunImport:
    """Sends what is new of a run, as often as `advance` is called. Raises Unreadable, ApiError, Unreachable, and Stopped."""

    def __init__(self, path: Path, files: Run, delivery: Delivery) -> None:
        self._path, self._files, self.delivery = path, files, delivery
        self._next = 0  # the first step that is not known to be whole
        self._sent: list[int] = []  # the hashes of those of its groups that were sent
        self._sent_parts = 0  # in how many reports
        self._left_out: list[str] = []  # groups and token values of this step that no report can have, and why
        self._completed: tuple[int, ...] = ()  # the counts of the newest step that was sent
        self._evaluated = (-1, 0)  # the step whose evaluation was sent, and with how many metrics
        self._seen: tuple[int, ...] = ()  # the counts of the newest at the last look
        self._still_since = 0.0
        self._open_for = OPEN_SECONDS
        self._files_hash = 0  # at the last look
        self._hash_at = self._look_at = 0.0  # when the files may be hashed, and when they may be read, again
        self._late: dict[int, Step] = {}  # what came of earlier steps

    def begin(self, from_step: int | None = None) -> None:
        """Find or make the run, and go on from its newest step, or from this one, which is recorded anew."""
        self._next = self.delivery.begin(from_step)

    def advance(self, *, final: bool, on_progress: Callable[[int], None] = lambda step: None) -> None:
        """Send what is new. Unless this is `final`, the newest step is sent once it has not changed for a while, and files that have not
        changed are not read again while nothing waits.
        """
        began = time.monotonic()
        if not final and began < self._hash_at:
            return
        files_hash = _hash_of_files(self._path)
        self._hash_at = time.monotonic() + PAUSE * (time.monotonic() - began)
        if not final and files_hash == self._files_hash and began < self._look_at:
            return
        start = self._next
        for attempt in count(1):
            try:
                look_at = self._look(final, on_progress)
                self.delivery.wait()
            except Outdated as outdated:
                lost = [outdated.step, *self.delivery.give_up()]
                if attempt > MOST_ATTEMPTS and isinstance(outdated.__cause__, ApiError):
                    raise outdated.__cause__ from None
                self._go_back_to(min([one for one in lost if one is not None], default=start))
            else:
                self._late.clear()
                self._open_for *= 2 if attempt > 1 else 1
                now = time.monotonic()
                self._files_hash = files_hash
                self._look_at = min(look_at, now + max(REREAD_SECONDS, PAUSE * (now - began)))
                return

    def _go_back_to(self, step: int) -> None:
        """Have what is recorded from this step on replaced."""
        self.delivery.next_attempt(step)
        self._next, self._completed, self._evaluated = step, (), (-1, 0)
        self._sent, self._sent_parts, self._left_out = [], 0, []

    def _look(self, final: bool, on_progress: Callable[[int], None]) -> float:
        """Send what can be sent. The monotonic time from which on more can be, though nothing comes."""
        newest: PendingStep | None = None
        for late in self._late.values():
            self._send_late(late)
        for piece in self._files.steps(self._next, final=final):
            if not 0 <= piece.step <= MOST_STEPS:
                said = f"a step has the number {piece.step:,}, and 0 to {MOST_STEPS:,} are expected"
                at, still_open = (self._next, False) if newest is None else (newest.step, newest.open)
                piece = Step(at, unreadable=[said], open=still_open)
            if piece.step < self._next:
                self._late[piece.step] = piece
                self._send_late(piece)
                continue
            if newest is not None and piece.step != newest.step:
                self._complete(newest)
                on_progress(newest.step)
                newest = None
            newest = newest or PendingStep(piece.step)
            newest.add(piece, self._sent_of(piece.step))
            if newest.size > PART_CHARACTERS:
                self._send_part(newest)
        if newest is None:
            return math.inf
        if newest.counts != self._seen:
            self._seen, self._still_since = newest.counts, time.monotonic()
        on_progress(newest.step)
        if newest.counts == self._completed:
            return math.inf
        still = time.monotonic() - self._still_since
        has_tokens = any(one.tokens for _, group in newest.waiting for one in group.completions)
        in_one = has_tokens or self._completed[:1] == (newest.step,) or self._has_changed(newest)
        whole = not newest.open or (in_one and still >= self._open_for)
        if final or (whole and still >= SETTLED_SECONDS):
            self._complete(newest)
            return math.inf
        if still < SETTLED_SECONDS:
            return self._still_since + SETTLED_SECONDS
        self._send_evaluation(newest)
        if in_one:  # values of tokens belong to the whole step, and what was sent is replaced as a whole
            return self._still_since + self._open_for
        self._send_part(newest)
        return math.inf

    def _complete(self, pending: PendingStep) -> None:
        """Send the step, its evaluation first. Raises Outdated if it was sent, and has grown since."""
        if self._was_completed(pending):
            return
        self._send_evaluation(pending)
        of_training = {name: value for name, value in pending.metrics.items() if not name.startswith(p.EVALUATION)}
        of_training = pending.of_rewards() | in_our_names(of_training) | of_training  # the trainer's own word counts
        groups, trace, left_out = pending.reports(self.delivery.weights)
        wrong = [*pending.unreadable, *self._left_out, *left_out]
        report = self.delivery.report(
            pending.step,
            1 + self._parts_of(pending),
            metrics=of_training,
            groups=groups,
            trace=trace,
            seconds=pending.seconds,
            logs=_log_of(pending.step, wrong),
        )
        if not groups and not of_training:
            report = report.model_copy(update={"step": None})
        if groups or of_training or report.logs:
            for part in in_parts(report):
                self.delivery.send(part)
        if wrong:
            self.delivery.tally.unreadable[pending.step] = len(wrong), wrong[:SHOWN_LINES]
        self._next, self._completed = pending.step, pending.counts
        self._sent, self._sent_parts, self._left_out = [], 0, []

    def _send_evaluation(self, pending: PendingStep) -> None:
        """Send the metrics of the evaluation before the step, which completes nothing."""
        values = {name: value for name, value in pending.metrics.items() if name.startswith(p.EVALUATION)}
        if values and self._evaluated != (pending.step, len(values)):
            self.delivery.send(self.delivery.report(pending.step, 0, metrics=values | in_our_names(values)))
            self._evaluated = pending.step, len(values)

    def _send_part(self, pending: PendingStep) -> None:
        """Send the groups that wait, before the rest of their step is known."""
        if self._was_completed(pending):
            return
        groups, trace, left_out = pending.reports(self.delivery.weights)
        self._left_out += left_out
        if trace is not None:
            self._left_out.append(
                f"step {pending.step} is too large for one report: token values of {len(groups)} groups"
            )
        parts = self._parts_of(pending)
        for report in in_parts(self.delivery.report(pending.step, 1 + parts, groups=groups)) if groups else ():
            self._left_out += [line.message for line in report.logs]
            self.delivery.send(report.model_copy(update={"part": True, "logs": []}))
            parts += 1
        self._next, self._sent, self._sent_parts = pending.step, list(pending.group_hashes), parts
        pending.waiting, pending.size = [], 0

    def _send_late(self, piece: Step) -> None:
        """Metrics that became known after their step was sent, those of its evaluation apart."""
        for place, evaluated in ((1, False), (2, True)):
            values = {name: one for name, one in piece.metrics.items() if name.startswith(p.EVALUATION) == evaluated}
            name = next((one for one in values if one not in OF_REWARDS), None)
            if name is None or piece.step in (there := self.delivery.steps_with(name)):
                continue
            there.add(piece.step)
            metrics = values | in_our_names(values)
            self.delivery.send(self.delivery.report(piece.step, REPORTS_A_STEP - place, metrics=metrics, late=True))

    def _has_changed(self, pending: PendingStep) -> bool:
        """Whether groups that were sent of a step have grown since, or others stand in their places."""
        return pending.step == self._next and pending.group_hashes[: len(self._sent)] != self._sent

    def _was_completed(self, pending: PendingStep) -> bool:
        if self._completed[:1] != (pending.step,):
            if self._has_changed(pending):
                raise Outdated(pending.step)
            return False
        if self._completed != pending.counts:
            raise Outdated(pending.step)
        return True

    def _sent_of(self, step: int) -> int:
        """How many of the step's groups need not be kept. Of a completed step none need: if others came, it is read again."""
        if self._completed[:1] == (step,):
            return sys.maxsize
        return len(self._sent) if step == self._next else 0

    def _parts_of(self, pending: PendingStep) -> int:
        return self._sent_parts if pending.step == self._next else 0


def _hash_of_files(path: Path) -> int:
    """Another one once a file at the path came, grew or was written again."""

    def of(name: str) -> tuple[str, int, int]:
        try:
            found = os.stat(name)
        except OSError:
            return name, -1, 0
        return name, found.st_size, found.st_mtime_ns

    below = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return hash(frozenset(map(of, [os.fspath(path), *below])))


def _log_of(step: int, lines: Sequence[str]) -> list[p.LogLine]:
    """What the run's log says of what a step lacks."""
    said = [f"left out: {line}" for line in lines[:SHOWN_LINES]]
    if len(lines) > SHOWN_LINES:
        said.append(f"left out: {len(lines) - SHOWN_LINES:,} further lines of step {step}")
    return [p.LogLine(level="warning", message=line) for line in said]
