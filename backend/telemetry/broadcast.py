"""Wakes the event streams of a run after a commit, so that nobody polls."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Broadcast:
    """Rings for a run; it carries nothing: the listener reads the database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bells: dict[int, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = defaultdict(set)

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
