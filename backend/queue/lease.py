"""Leases: a worker holds a run while its attempt is the current one; every write renews it, and a stale one is refused."""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, RowMapping, select, update

from backend.errors import LeaseLost
from backend.runs.store import PRESENT
from backend.storage.tables import run


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


def expired(now: float) -> ColumnElement[bool]:
    """Runs whose worker has been silent for longer than its lease."""
    return (run.c.status == "running") & (run.c.lease_until < now)


def hold(tx: Connection, run_id: int, attempt: int, terms: Terms) -> RowMapping:
    """Renew the lease of the current attempt; the run's row. Raises LeaseLost for any other attempt.

    A lease that ran out is renewed, too, as long as nobody else has claimed the run: nothing was lost.
    """
    renewed = (
        update(run)
        .where(run.c.id == run_id, run.c.attempt == attempt, run.c.status == "running")
        .values(lease_until=terms.until)
        .returning(run)
    )
    row = tx.execute(renewed).mappings().one_or_none()
    if row is None:
        raise lost(tx, run_id, attempt)
    return row


def lost(tx: Connection, run_id: int, attempt: int) -> LeaseLost:
    """Why an attempt holds nothing."""
    row = tx.execute(select(run.c.status, run.c.attempt).where(run.c.id == run_id, PRESENT)).one_or_none()
    if row is None:
        return LeaseLost(f"Run {run_id} no longer exists: somebody deleted it.")
    if row.attempt != attempt:
        return LeaseLost(f"Attempt {attempt} lost run {run_id}: its current attempt is {row.attempt}.")
    return LeaseLost(f"Attempt {attempt} no longer holds run {run_id}: the run is {row.status}.")


def extend_all(tx: Connection, terms: Terms) -> None:
    """Give every running run a fresh lease: the backend was away, and its workers could not renew."""
    tx.execute(update(run).where(run.c.status == "running").values(lease_until=terms.until))


def rewrite(tx: Connection) -> None:
    """Store every lease as it is: what a heartbeat writes, without its effect. Nothing is written where nothing runs."""
    tx.execute(update(run).where(run.c.status == "running").values(lease_until=run.c.lease_until))
