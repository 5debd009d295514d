"""Two clocks: the wall's for stamps that people read, and one that never jumps for leases."""

import time
from datetime import UTC, datetime


class Clock:
    """The backend's time. Workers never send theirs."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def stamp(self) -> datetime:
        """The wall clock, in UTC."""
        return datetime.now(UTC)

    def seconds(self) -> float:
        """Seconds since the epoch as they were at the start of the process, plus what has passed since.

        A wall clock that is set back or forward in between neither shortens nor stretches a lease.
        """
        return self._offset + time.monotonic()
