"""Wakes the event streams of a run after a commit, so that nobody polls."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from anyio import CapacityLimiter

from backend.errors import Refusal

_READERS = 4  # of the forty threads that requests share


class TooManyStreams(Refusal):
    """As many event streams are open as may be, so that connections are left for everything else."""

    status, code = 503, "busy"


class Broadcast:
    """Rings for a run; it carries nothing: the listener reads the database.

    `most` is the number of event streams that may be open at once, `readers` the threads in which they read: however many
    streams wake at a commit, most threads are free for other requests.
    """

    def __init__(self, *, most: int) -> None:
        self.most, self.open = most, 0
        self.readers = CapacityLimiter(_READERS)
        self._lock = threading.Lock()
        self._bells: dict[int, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = defaultdict(set)

    @contextmanager
    def place(self) -> Iterator[None]:
        """One of the places for event streams; for the event loop's thread. Raises TooManyStreams."""
        if self.open >= self.most:
            raise TooManyStreams(
                f"{self.open} event streams are open, and that is the most: close some, or ask for the run now and then."
            )
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    @contextmanager
    def listen(self, run_id: int) -> Iterator[asyncio.Event]:
        """An event that is set whenever the run rings; the listener clears it."""
        bell = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._bells[run_id].add(bell)
        try:
            yield bell[1]
        finally:
            with self._lock:
                self._bells[run_id].discard(bell)
                if not self._bells[run_id]:
                    del self._bells[run_id]

    def ring(self, run_id: int) -> None:
        """From any thread, after the commit."""
        with self._lock:
            bells = list(self._bells.get(run_id, ()))
        for loop, bell in bells:
            loop.call_soon_threadsafe(bell.set)
