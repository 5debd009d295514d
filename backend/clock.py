"""Two clocks: the wall's for stamps that people read, and one for leases, which nobody can set and which waits for the backend."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime


class Clock:
    """The backend's time. Workers never send theirs."""

    def __init__(self, slack: float = 1.0) -> None:
        self.slack = slack
        self._pulse = (time.monotonic(), time.time())  # when the last one came, and what the lease clock showed then

    def stamp(self) -> datetime:
        """The wall clock, in UTC."""
        return datetime.now(UTC)

    def seconds(self) -> float:
        """Seconds since the epoch at the start of the process, plus those since then in which a heartbeat could be stored.

        A wall clock that is set back or forward neither shortens nor stretches a lease. Nor does a stall of the backend's own
        (another process holds the write lock, the disk hangs, the process was stopped): beyond `slack` seconds without a
        pulse the clock stands still, so that no worker pays for heartbeats that nobody could take.
        """
        at, shown = self._pulse
        return shown + min(time.monotonic() - at, self.slack)

    def pulse(self) -> None:
        """Say that a heartbeat could be stored now; only one thread may say it."""
        at, shown = self._pulse
        now = time.monotonic()
        self._pulse = (now, shown + min(now - at, self.slack))


@dataclass(frozen=True)
class Terms:
    """The clock and the length of a lease in one transaction, in seconds."""

    now: float
    ttl: float
    max_failures: int

    @property
    def until(self) -> float:
        """When a lease given now runs out."""
        return self.now + self.ttl
