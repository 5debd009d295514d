"""The sweep: settles runs that nobody holds any more."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, update

from backend.clock import Terms
from backend.contract.config import RECORDED
from backend.contract.records import STOPS, RunError
from backend.queue import lease
from backend.queue.attempts import IDLE, tell
from backend.storage.tables import run

WORKER_LOST = RunError(
    code="worker_lost",
    message="The worker stopped answering too often, and the run was given up. Its checkpoints are kept: see the worker's "
    "log for the cause, then retry.",
)


SILENT = RunError(
    code="not_heard_of",
    message="The program that trains this run has not been heard of for a while: it ended without a word, or cannot reach the "
    "backend. What it recorded meanwhile lies on its machine, and `groupscope sync` sends it from there.",
)


def sweep(tx: Connection, terms: Terms, at: datetime) -> list[int]:
    """Settle lost runs: those asked to stop or pause do, those out of budget fail. Their numbers."""
    expired = lease.expired(terms.now)
    spent = run.c.failures + 1 >= terms.max_failures
    ends: list[tuple[ColumnElement[bool], dict[str, Any]]] = [
        (run.c.requested.in_(STOPS), {"status": "stopped", "finished_at": at}),
        (run.c.requested == "pause", {"status": "paused"}),
        (run.c.kind == RECORDED, {"status": "failed", "finished_at": at, "error": SILENT.model_dump()}),
        (spent, {"status": "failed", "finished_at": at, "error": WORKER_LOST.model_dump()}),
    ]
    settled = []
    for condition, values in ends:
        settle = update(run).where(expired, condition).values(**IDLE, **values, failures=run.c.failures + 1)
        for run_id in tx.execute(settle.returning(run.c.id)).scalars():
            tell(tx, run_id, str(values["status"]), at)
            settled.append(run_id)
    return settled


def anything(tx: Connection, terms: Terms) -> bool:
    """Whether a lease has run out, so that an idle backend writes nothing."""
    return tx.execute(run.select().where(lease.expired(terms.now)).limit(1)).first() is not None
