"""Leases: a worker holds a run while its attempt is the current one; every write renews it, and a stale one is refused."""

import hashlib
import hmac
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, Connection, RowMapping, case, select, update

from backend import events
from backend.clock import Terms
from backend.contract.config import RECORDED
from backend.errors import LeaseLost
from backend.runs.store import PRESENT
from backend.server.log import about_attempt
from backend.storage.tables import attempt, run


def expired(now: float) -> ColumnElement[bool]:
    """Runs whose worker has been silent for longer than its lease."""
    return (run.c.status == "running") & (run.c.lease_until < now)


def hold(tx: Connection, run_id: int, number: int, terms: Terms) -> RowMapping:
    """Renew the lease of the current attempt; the run's row. Raises LeaseLost for any other attempt.

    A lease that ran out is renewed, too, as long as nobody else has claimed the run: nothing was lost.
    """
    renewed = (
        update(run)
        .where(run.c.id == run_id, run.c.attempt == number, run.c.status == "running")
        .values(lease_until=terms.until)
        .returning(run)
    )
    row = tx.execute(renewed).mappings().one_or_none() or _revived(tx, run_id, number, terms)
    if row is None:
        raise lost(tx, run_id, number)
    return row


def _revived(tx: Connection, run_id: int, number: int, terms: Terms) -> RowMapping | None:
    """A recorded run of which nobody had heard for a while: only its own program could go on with it, and it has."""
    ended = select(attempt.c.attempt).where(attempt.c.run_id == run_id, attempt.c.attempt == number)
    revived = (
        update(run)
        .where(run.c.id == run_id, run.c.attempt == number, run.c.kind == RECORDED, run.c.status == "failed")
        .where(~ended.where(attempt.c.outcome.is_not(None)).exists())
        .values(status="running", lease_until=terms.until, error=None, finished_at=None)
        .returning(run)
    )
    row = tx.execute(revived).mappings().one_or_none()
    if row is not None:
        payload = {"status": "running", "requested": row["requested"]}
        events.record(tx, run_id, "status", payload, datetime.now(UTC))
    return row


def digest(secret: str) -> str:
    """What is kept of a claim's secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def prove(tx: Connection, run_id: int, number: int, secret: str) -> None:
    """Raises LeaseLost unless the secret is the one that the claim of this attempt gave out."""
    about_attempt(number)
    query = select(attempt.c.secret_sha256).where(attempt.c.run_id == run_id, attempt.c.attempt == number)
    kept = tx.execute(query).scalar_one_or_none()
    if kept is not None and not hmac.compare_digest(kept, digest(secret)):
        raise LeaseLost(
            f"This is not the worker that claimed run {run_id} for attempt {number}: every message after a claim shows the "
            "claim's secret in the header Groupscope-Claim."
        )


def lost(tx: Connection, run_id: int, number: int) -> LeaseLost:
    """Why an attempt holds nothing."""
    row = tx.execute(select(run.c.status, run.c.attempt).where(run.c.id == run_id, PRESENT)).one_or_none()
    if row is None:
        return LeaseLost(f"Run {run_id} no longer exists: somebody deleted it.")
    if row.attempt != number:
        return LeaseLost(f"Attempt {number} lost run {run_id}: its current attempt is {row.attempt}.")
    return LeaseLost(f"Attempt {number} no longer holds run {run_id}: the run is {row.status}.")


def extend_all(tx: Connection, terms: Terms) -> None:
    """Give every running run a fresh lease: the backend was away, and its workers could not renew."""
    # a later time than now is of a clock that was set back meanwhile
    since = case((run.c.phase_since > terms.now, terms.now), else_=run.c.phase_since)
    tx.execute(update(run).where(run.c.status == "running").values(lease_until=terms.until, phase_since=since))


def rewrite(tx: Connection) -> None:
    """Store every lease as it is: what a heartbeat writes, without its effect. Nothing is written where nothing runs."""
    tx.execute(update(run).where(run.c.status == "running").values(lease_until=run.c.lease_until))
