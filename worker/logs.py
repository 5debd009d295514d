"""Log lines that say which run they belong to, so that one search finds all of one run's."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from backend.contract.protocol import Claim

_held: list[str] = []  # a worker has one run at a time, and at most a sample of another between two of its steps


@contextmanager
def of_run(claim: Claim) -> Iterator[None]:
    """Every line that any thread writes meanwhile belongs to this run and attempt."""
    _held.append(f"[run {claim.run_id} attempt {claim.attempt}] ")
    try:
        yield
    finally:
        _held.pop()


class RunFormatter(logging.Formatter):
    """Time, level, run and attempt, message; the lines of a traceback begin with run and attempt, too."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(run)s%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """One record, which may have several lines."""
        run = _held[-1] if _held else ""
        record.__dict__["run"] = run  # where the format looks
        first, *others = super().format(record).splitlines() or [""]
        return "\n".join([first, *(f"{run}{line}" for line in others)])


def write_logs() -> None:
    """Write the log of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RunFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)
