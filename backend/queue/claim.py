"""The claim: one statement takes a run, raises its attempt and sets the lease, so that two workers never get the same."""

import secrets
from collections.abc import Collection
from datetime import datetime
from itertools import islice

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, case, insert, or_, select, update

from backend.checkpoints import named, retention
from backend.checkpoints import store as checkpoints
from backend.contract import protocol as p
from backend.contract.model import checkpoint_of
from backend.queue import lease
from backend.queue.needs import needs_of
from backend.runs.store import CLAIM_ORDER
from backend.storage.tables import attempt, run
from backend.telemetry import events

CONSIDERED = 20
"""Runs offered to one claim: more than workers that claim at the same moment."""


def claim(
    tx: Connection, worker: p.WorkerInfo, kinds: Collection[str], terms: lease.Terms, at: datetime
) -> p.Claim | None:
    """The next run that this worker can go on with: queued, or lost by another within its budget of failures."""
    lost = and_(lease.expired(terms.now), run.c.requested == "nothing", run.c.failures + 1 < terms.max_failures)
    waiting = and_(
        or_(run.c.status == "queued", lost),
        run.c.kind.in_(kinds),
        or_(run.c.store.is_(None), run.c.store == worker.store),
    )
    candidate = (
        select(run.c.id)
        .where(waiting, run.c.id.in_(_fitting(tx, waiting, worker)))
        .order_by(*CLAIM_ORDER)
        .limit(1)
        .with_for_update(skip_locked=True)
        .scalar_subquery()
    )
    taken = (
        update(run)
        .where(run.c.id == candidate)
        .values(
            status="running",
            attempt=run.c.attempt + 1,
            failures=run.c.failures + case((run.c.status == "running", 1), else_=0),
            worker=worker.name,
            device=worker.device,
            lease_until=terms.until,
            phase=None,  # the lost worker's
            error=None,
            started_at=case((run.c.started_at.is_(None), at), else_=run.c.started_at),
        )
        .returning(run)
    )
    row = tx.execute(taken).mappings().one_or_none()
    if row is None:
        return None
    secret = secrets.token_urlsafe(32)
    tx.execute(
        insert(attempt).values(
            run_id=row["id"],
            attempt=row["attempt"],
            worker=worker.name,
            secret_sha256=lease.digest(secret),
            claimed_at=at,
            heard_at=at,
        )
    )
    events.record(tx, row["id"], "status", {"status": "running", "requested": row["requested"]}, at)
    return _offer(tx, row, worker.store, terms.ttl, secret)


def _fitting(tx: Connection, waiting: ColumnElement[bool], worker: p.WorkerInfo) -> list[int]:
    """The first waiting runs whose needs the worker meets; compared here, since lists in JSON are no portable SQL."""
    rows = tx.execute(select(run.c.id, run.c.config).where(waiting).order_by(*CLAIM_ORDER))
    fitting = (row.id for row in rows if needs_of(row.config).met_by(worker))
    return list(islice(fitting, CONSIDERED))


def _offer(tx: Connection, row: RowMapping, store: str, ttl: float, secret: str) -> p.Claim:
    saved = [checkpoints.reference(one) for one in checkpoints.newest_in(tx, row["id"], store)]
    start = checkpoint_of(row["config"]["model"]["source"])
    source = checkpoints.live_at(tx, *start) if start else None
    return p.Claim(
        run_id=row["id"],
        name=row["name"],
        attempt=row["attempt"],
        secret=secret,
        config=row["config"],
        lease_seconds=ttl,
        resume=saved[0] if saved else None,
        earlier=saved[1:],
        source_checkpoint=checkpoints.reference(source) if source else None,
        reward_checkpoints=named.reward_references(tx, row["config"]),
        kept=retention.kept(tx, row["id"], row["config"], store),
    )
