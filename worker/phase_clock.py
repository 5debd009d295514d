"""How long the phases of a step take."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class PhaseClock:
    """Seconds of each phase of a step, by a monotonic clock."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what runs inside towards a phase."""
        began = time.monotonic()
        yield
        self.add(name, time.monotonic() - began)

    def add(self, name: str, seconds: float) -> None:
        """Count seconds that were measured elsewhere."""
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def metrics(self, tokens: int) -> dict[str, float]:
        """`time/<phase>`, `step_time`, and the sampled tokens per second of rollout."""
        total = time.monotonic() - self._began
        rollout = self._seconds.get("rollout", 0.0)
        return {
            **{f"time/{name}": seconds for name, seconds in self._seconds.items()},
            "step_time": total,
            "tokens_per_second": tokens / rollout if rollout > 0 else float("nan"),
        }
