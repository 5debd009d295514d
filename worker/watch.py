"""The watch over one attempt: whether it goes on, and what to say if it does not and the process has to end.

Python cannot end a thread that hangs, so what ends is the whole process.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from backend.contract.protocol import Fail, Finish
from backend.contract.records import RunError

_LOOK_SECONDS = 0.2
_STARTING, _LOADING = "starting", "loading"  # what the names of phases without signs of life begin with
_UNCUT = frozenset({"checkpoint"})  # a large one is written for minutes without a sign, and is worth the wait


@dataclass(frozen=True)
class Patience:
    """Seconds: for one phase of loading, for silence in training, and for an answer to a stop or a shutdown."""

    loading: float
    silence: float
    stop: float


@dataclass(frozen=True)
class Asked:
    """What was asked of an attempt: a stop, a second one; of its process a shutdown, a second one. Or its lease is lost."""

    stop: bool = False
    stop_at_once: bool = False
    shutdown: bool = False
    shutdown_at_once: bool = False
    lost: bool = False


@dataclass(frozen=True)
class Verdict:
    """The process has to end: what the backend should hear of this attempt, and what the log says."""

    end: Finish | Fail
    why: str


class Watch:
    """Looks after an attempt, in a thread of its own, while it is entered; `end` is called once the process has to end.

    Training tells how it goes on (`show`), and every call is a sign of life. Without one, what was asked waits for
    `patience.stop`, or for three times the longest silence so far if steps are that slow; and a phase of training lasts for
    `patience.silence`. Phases of loading give no signs: each has `patience.loading`.

    `ending` is one lock for all watches of the process: with it held, `end` is called, and an attempt is left.
    """

    def __init__(
        self,
        attempt: int,
        patience: Patience,
        asked: Callable[[], Asked],
        end: Callable[[Verdict], None],
        ending: threading.Lock,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._attempt, self._patience, self._asked, self._end = attempt, patience, asked, end
        self._ending, self._now = ending, now
        self._phase: str | None = _STARTING
        self._began = self._signed = now()
        self._longest = 0.0
        self._since: dict[str, float] = {}
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._look, name=f"watch-{attempt}", daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._ending:  # never ours again if the process is about to end
            self._left.set()

    def show(self, phase: str | None) -> None:
        """A sign of life from a phase; None: another watch looks after what is done now."""
        now = self._now()
        if self._phase is not None and self._phase not in _UNCUT and not self._loads:
            self._longest = max(self._longest, now - self._signed)
        if phase != self._phase:
            self._began = now
        self._phase, self._signed = phase, now

    def alive(self) -> None:
        """A sign of life of another process of the run, which this one may be waiting for."""
        self.show(self._phase)

    def verdict(self, asked: Asked) -> Verdict | None:
        """Whether the process has to end."""
        phase = f"in the phase '{self._phase or 'between two steps'}'"
        if asked.shutdown_at_once:
            return self._ended("released", f"asked twice to end, {phase}")
        if asked.stop_at_once:
            return self._ended("stopped", f"stopped at once, {phase}")
        if self._phase is None:
            return None
        if self._phase not in _UNCUT:
            if asked.stop and (seconds := self._unheeded("stop")):
                return self._ended("stopped", f"stopped: did not answer {phase} for {seconds:.0f} s")
            if asked.shutdown and (seconds := self._unheeded("shutdown")):
                return self._ended("released", f"asked to end: did not answer {phase} for {seconds:.0f} s")
            if asked.lost and (seconds := self._unheeded("lost")):
                return self._ended("released", f"lost its lease: did not answer {phase} for {seconds:.0f} s")
        return self._overdue(phase)

    @property
    def _loads(self) -> bool:
        return (self._phase or "").startswith((_STARTING, _LOADING))

    def _unheeded(self, what: str) -> float | None:
        """For how long something that was asked has been waiting without a sign of life, if that is too long."""
        now = self._now()
        seconds = now - max(self._since.setdefault(what, now), self._signed)
        return seconds if seconds > max(self._patience.stop, 3 * self._longest) else None

    def _overdue(self, phase: str) -> Verdict | None:
        """Past the deadline of its phase. What hangs while it loads would hang again; training goes on from its last checkpoint."""
        loads, limit = self._loads, self._patience.loading if self._loads else self._patience.silence
        if self._now() - (self._began if loads else self._signed) <= limit:
            return None
        why = f"no end {phase} after {limit:.0f} s" if loads else f"no sign of life {phase} for {limit:.0f} s"
        name = "GROUPSCOPE_LOADING_SECONDS" if loads else "GROUPSCOPE_SILENCE_SECONDS"
        advice = f"If it only needs longer, raise {name} in the worker's settings, then retry."
        error = RunError(code="phase_deadline", message=f"{_sentence(why)} {advice}")
        return Verdict(Fail(attempt=self._attempt, error=error, retryable=not loads), why)

    def _ended(self, outcome: Literal["stopped", "released"], why: str) -> Verdict:
        error = RunError(code="process_ended", message=_sentence(why))
        return Verdict(Finish(attempt=self._attempt, outcome=outcome, error=error), why)

    def _look(self) -> None:
        while not self._left.wait(_LOOK_SECONDS):
            verdict = self.verdict(self._asked())
            if verdict is not None:
                with self._ending:
                    if not self._left.is_set():
                        self._end(verdict)
                return


def _sentence(why: str) -> str:
    return f"{why[:1].upper()}{why[1:]}; the worker's process was ended."
