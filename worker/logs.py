"""The worker's log: every line says which run it belongs to, so that one search finds all of one run's."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from backend.contract.log import LineFormatter, subject
from backend.contract.protocol import Claim

_held: list[str] = []  # a worker has one run at a time, and at most a sample of another between two of its steps


@contextmanager
def of_run(claim: Claim) -> Iterator[None]:
    """Every line that any thread writes meanwhile belongs to this run and attempt."""
    _held.append(subject(claim.run_id, claim.attempt))
    try:
        yield
    finally:
        _held.pop()


def formatter() -> LineFormatter:
    """Of this process: its threads work for one run."""
    return LineFormatter(lambda: _held[-1] if _held else "")


def write_logs() -> None:
    """Write the log of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # torch warns that processes may be left behind, which cannot happen: each of a run's ends with its worker
    logging.getLogger("torch.distributed.elastic.multiprocessing.api").addFilter(
        lambda record: not record.getMessage().startswith("Failed to register signal handlers")
    )
