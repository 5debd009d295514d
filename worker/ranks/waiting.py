"""For how long a process of several waits for the others: the one that waits least is the one that all wait for."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Waiting:
    """Counts what passes between `begin` and `end`. Other threads may read it."""

    def __init__(self) -> None:
        self.seconds = 0.0  # in all, without a wait that goes on
        self.since: float | None = None  # by the monotonic clock

    def begin(self) -> None:
        """From now on it waits."""
        self.since = time.monotonic()

    def end(self) -> None:
        """It waits no longer, if it did."""
        since, self.since = self.since, None
        if since is not None:
            self.seconds += time.monotonic() - since

    @contextmanager
    def others(self) -> Iterator[None]:
        """Wait inside."""
        self.begin()
        try:
            yield
        finally:
            self.end()


WAITING = Waiting()
"""Of this process, which trains one run at a time."""
