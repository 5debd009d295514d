"""What one of several processes does at this moment, for the worker that started it."""

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from statistics import median

from backend.contract.records import ENOUGH_RANK_STEPS, RANK_STEPS, Progress, Rank
from worker.ranks.board import ENDED
from worker.ranks.waiting import WAITING

SAY_SECONDS = 1.0
_PHASE_SECONDS = 0.1  # phases that follow each other faster are not all said
_NOTICED_SECONDS = 1.0  # a shorter wait is the others' usual lead

Memory = Callable[[], tuple[int | None, int | None]]
"""The bytes that this process holds, and the most that it has held; None where that is not known."""


class Status:
    """Says what this process does, every second from a thread of its own while it is entered, each new phase that lasts, and its end."""

    def __init__(self, rank: int, say: Callable[[Rank], None], memory: Memory) -> None:
        self._say, self._memory = say, memory
        self._now = Rank(rank=rank, host=socket.gethostname(), pid=os.getpid())
        self._began = time.monotonic()
        self._steps: deque[float] = deque(maxlen=RANK_STEPS)
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._speak, name="status", daemon=True)

    def __enter__(self) -> "Status":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()
        self.show(Progress(step=self._now.step, phase=ENDED))
        self._speak_once()

    def show(self, progress: Progress) -> None:
        """How far it is with its share of a phase."""
        before = self._now
        at = progress.model_dump(include={"step", "phase", "done", "total"})
        self._now = before.model_copy(update=at)
        if (progress.phase, progress.step) != (before.phase, before.step):
            before_this, self._began = self._began, time.monotonic()
            if self._began - before_this >= _PHASE_SECONDS:
                self._speak_once()

    def worked(self, seconds: Mapping[str, float]) -> None:
        """For how long it worked in each phase of a step that is over, without waiting for the others."""
        self._steps.append(sum(seconds.values()))
        typical = median(self._steps) if len(self._steps) >= ENOUGH_RANK_STEPS else None
        self._now = self._now.model_copy(update={"worked": dict(seconds), "step_seconds": typical})

    def _speak(self) -> None:
        while True:
            self._speak_once()
            if self._left.wait(SAY_SECONDS):
                return

    def _speak_once(self) -> None:
        now, since = time.monotonic(), WAITING.since
        waits = 0.0 if since is None or now - since < _NOTICED_SECONDS else now - since
        held, peak = self._memory()
        update = {"phase_seconds": now - self._began, "waits_seconds": waits, "memory_bytes": held, "peak_bytes": peak}
        with suppress(OSError, EOFError):  # the worker has gone, and ends this process
            self._say(self._now.model_copy(update=update))
