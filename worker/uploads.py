"""Whole checkpoints on their way into the bucket, beside the next steps: one after another, as often as it takes."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Literal

from backend.bucket.bucket import BucketTrouble
from worker.checkpoint import Saved
from worker.store import Store, pauses

log = logging.getLogger(__name__)

MOST_WAITING = 4
"""Checkpoints that wait on the disk for a bucket that is away; training waits before it writes another one."""
HURRIED_SECONDS = 20.0
"""For the bucket, where a worker shuts down: less than its supervisor's grace."""
ROUND_SECONDS = 1.0  # of a wait for room, after which it is looked whether the worker shuts down
_LOOK_SECONDS = 0.1
_MIB = 2**20


class Uploads:
    """Uploads what it is given, in a thread of its own. `registered` is called with each checkpoint that is whole in the bucket; `say`
    with a warning while the bucket does not take one, and with an info once it has."""

    def __init__(
        self,
        store: Store,
        registered: Callable[[int, Saved], None],
        say: Callable[[Literal["info", "warning"], str], None],
    ) -> None:
        self._store, self._registered, self._say = store, registered, say
        self._changed = threading.Condition()
        # each with the lock that keeps it from making room
        self._waiting: deque[tuple[int, Saved, ExitStack]] = deque()
        self._bytes = self._total = 0
        self._left = threading.Event()
        self._error: Exception | None = None
        self.thread = threading.Thread(target=self._work, name="uploads", daemon=True)
        self.thread.start()

    def add(self, step: int, saved: Saved) -> None:
        """Have a checkpoint uploaded after those before it."""
        held = ExitStack()
        held.enter_context(self._store.held(saved.folder))
        with self._changed:
            self._waiting.append((step, saved, held))
            self._total += saved.size_bytes
            self._changed.notify_all()

    def wait(
        self,
        show: Callable[[int, int], None],
        *,
        most: int = 0,
        hurried: Callable[[], bool] = lambda: False,
        seconds: float = HURRIED_SECONDS,
    ) -> bool:
        """Wait until at most `most` checkpoints wait; once `hurried`, only for some `seconds`. Whether it is so.

        `show` gets what was uploaded and the total, in MiB, and may raise to end the wait.
        """
        until = float("inf")
        while self._error is None and len(self._waiting) > most:
            if hurried():
                until = min(until, time.monotonic() + seconds)
            if time.monotonic() > until:
                return False
            show(self._bytes // _MIB, self._total // _MIB)
            time.sleep(_LOOK_SECONDS)
        return self._error is None

    def check(self) -> None:
        """Raises what went wrong with an upload on this side."""
        if self._error is not None:
            raise self._error

    def leave(self) -> None:
        """Upload no further; what is on its way counts for nothing without its manifest."""
        with self._changed:
            self._left.set()
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting or self._left.is_set())
                    if self._left.is_set():
                        return
                    step, saved, held = self._waiting[0]
                if not self._upload(step, saved):
                    return
                held.close()
                self._waiting.popleft()
        except Exception as error:  # noqa: BLE001 — the boundary of a thread: the one that waits gets it
            self._error = error
        finally:
            for _, _, held in self._waiting:
                held.close()

    def _upload(self, step: int, saved: Saved) -> bool:
        """Whether it is in the bucket, and registered."""
        uploaded, before = set[str](), self._bytes
        said = False
        for pause in pauses():
            try:
                self._store.upload(saved.folder, uploaded, self._count)
                break
            except _Left:
                return False
            except BucketTrouble as trouble:
                log.warning("%s; trying again", trouble)
                self._bytes = before + sum((saved.folder / name).stat().st_size for name in uploaded)
                if not said:
                    text = f"checkpoint {step} is not in the bucket yet, and nothing is lost: it is tried again ({trouble})"
                    self._say("warning", text)
                    said = True
                if self._left.wait(pause):
                    return False
        if said:
            self._say("info", f"checkpoint {step} is in the bucket now")
        self._bytes = before + saved.size_bytes  # the total does not count manifests
        self._registered(step, saved)
        self._store.make_room()
        return True

    def _count(self, count: int) -> None:
        if self._left.is_set():
            raise _Left
        self._bytes += count


class _Left(Exception):
    """Nobody waits for the upload any more."""
