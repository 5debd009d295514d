"""Runs that another program trains: stored and claimed in one call, by the key that the program drew."""

import secrets
from datetime import datetime

from sqlalchemy import Connection, insert, select, update

from backend import events
from backend.clock import Terms
from backend.contract import protocol as p
from backend.contract.config import RECORDED
from backend.errors import Conflict
from backend.lifecycle.creation import require_short
from backend.queue import lease
from backend.runs import store
from backend.storage.tables import attempt, run


def begin(tx: Connection, sent: p.Recording, terms: Terms, at: datetime) -> p.Claim:
    """The claim of a new run, of a further attempt, or of the attempt that has the key already, with a new secret.

    Raises Invalid for a large configuration, NotFound, and Conflict for a run of another kind.
    """
    query = select(attempt.c.run_id, attempt.c.attempt).join(run, run.c.id == attempt.c.run_id)
    same = (attempt.c.claim_key == sent.key, run.c.kind == RECORDED, store.PRESENT)
    found = tx.execute(query.where(*same)).one_or_none()
    if found is not None:
        run_id, number = found.run_id, found.attempt
    else:
        if sent.run_id is not None and store.row_of(tx, sent.run_id)["kind"] != RECORDED:
            why = "is not a recorded one: its worker alone reports it. Leave the number out."
            raise Conflict(f"Run {sent.run_id} {why}")
        run_id = _created(tx, sent, at) if sent.run_id is None else sent.run_id
        number = _claimed(tx, run_id, sent, terms, at)
    row = store.row_of(tx, run_id)
    secret = secrets.token_urlsafe(32)
    of_claim = (attempt.c.run_id == run_id) & (attempt.c.attempt == number)
    tx.execute(update(attempt).where(of_claim).values(secret_sha256=lease.digest(secret)))
    return p.Claim(
        run_id=run_id, name=row["name"], attempt=number, secret=secret, config=row["config"], lease_seconds=terms.ttl
    )


def _created(tx: Connection, sent: p.Recording, at: datetime) -> int:
    config = sent.config.model_dump(mode="json")
    require_short(config)
    new = {
        "name": sent.name,
        "notes": sent.notes,
        "tags": list(dict.fromkeys(sent.tags)),
        "kind": RECORDED,
        "config": config,
        "total_steps": sent.config.budget.steps or 0,
        "priority": 0,
    }
    return store.create(tx, new, at)


def _claimed(tx: Connection, run_id: int, sent: p.Recording, terms: Terms, at: datetime) -> int:
    values = {
        "status": "running",
        "requested": "nothing",
        "attempt": run.c.attempt + 1,
        "worker": sent.worker,
        "lease_until": terms.until,
        "error": None,
        "finished_at": None,
    }
    number: int = tx.execute(update(run).where(run.c.id == run_id).values(values).returning(run.c.attempt)).scalar_one()
    tx.execute(update(run).where(run.c.id == run_id, run.c.started_at.is_(None)).values(started_at=at))
    tx.execute(
        insert(attempt).values(
            run_id=run_id, attempt=number, worker=sent.worker, claim_key=sent.key, claimed_at=at, heard_at=at
        )
    )
    events.record(tx, run_id, "status", {"status": "running", "requested": "nothing"}, at)
    return number
