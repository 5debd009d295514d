"""The processes of the runs that are trained by several, as their workers last described them: in memory, since it changes every second."""

import threading

from backend.contract.records import Ranks

KEPT_SECONDS = 600.0  # a run that nobody speaks of any longer is forgotten


class RanksHeard:
    """The newest description by run. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, tuple[int, float, Ranks]] = {}  # by run: attempt, when it came, what it says

    def hear(self, run_id: int, attempt: int, ranks: Ranks, now: float) -> None:
        """A worker described the processes of its attempt."""
        with self._lock:
            self._known = {known: one for known, one in self._known.items() if now - one[1] < KEPT_SECONDS}
            self._known[run_id] = attempt, now, ranks

    def of(self, run_id: int, attempt: int, now: float) -> Ranks:
        """Those of an attempt, with the age of what is known; empty if nothing is."""
        known, at, ranks = self._known.get(run_id, (0, now, Ranks()))
        return ranks.model_copy(update={"age_seconds": max(0.0, now - at)}) if known == attempt else Ranks()
