"""The claim: candidates are looked for in a snapshot; then one guarded statement takes one, raises its attempt and sets the lease."""

import secrets
from collections.abc import Collection
from datetime import datetime
from functools import cache
from itertools import islice

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, case, insert, or_, select, union_all, update

from backend import events
from backend.checkpoints import replays, retention
from backend.checkpoints import store as checkpoints
from backend.clock import Terms
from backend.contract import protocol as p
from backend.contract.base import Json
from backend.contract.records import STARTING
from backend.contract.replay import ReplayedRun
from backend.errors import Conflict
from backend.queue import lease
from backend.runs import reward_texts
from backend.runs import store as runs
from backend.runs.needs import Needs
from backend.runs.store import claim_order
from backend.storage import history
from backend.storage.tables import attempt, run
from backend.storage.tables import worker as workers

CONSIDERED = 20
"""Runs offered to one claim: more than workers that claim at the same moment."""
QUEUED = run.c.status == "queued"


def candidates(tx: Connection, worker: p.WorkerInfo, kinds: Collection[str], terms: Terms) -> list[int]:
    """The first waiting runs that this worker can go on with. For a snapshot: a long queue is read without the write lock."""
    suits = and_(run.c.kind.in_(kinds), or_(run.c.store.is_(None), run.c.store == worker.store))
    columns = (run.c.id, run.c.kind, run.c.priority, run.c.needs)
    waiting = union_all(*(select(*columns).where(one, suits) for one in (QUEUED, _lost(terms)))).subquery()
    rows = tx.execute(select(waiting.c.id, waiting.c.needs).order_by(*claim_order(waiting)))
    elsewhere = _offered(tx, terms) if worker.passed_over else set[str]()
    met = cache(lambda needs: Needs.read(needs).met_by(worker, elsewhere))
    return list(islice((row.id for row in rows if met(row.needs)), CONSIDERED))


def _offered(tx: Connection, terms: Terms) -> set[str]:
    """What the folders of rewards of all workers that are up have."""
    alive = select(workers.c.reward_files).where(workers.c.seen_at > terms.now - terms.ttl)
    return {one["function"] for files in tx.execute(alive).scalars() for file in files for one in file["functions"]}


def _lost(terms: Terms) -> ColumnElement[bool]:
    """Lost by another worker, within the run's budget of failures."""
    return and_(lease.expired(terms.now), run.c.requested == "nothing", run.c.failures + 1 < terms.max_failures)


def once_more(tx: Connection, worker: p.WorkerInfo, key: str, terms: Terms) -> p.Claim | None:
    """What a claim with this key took before, if the worker still holds it: the answer got lost. It gets a new secret."""
    same = attempt.c.attempt == run.c.attempt
    query = select(run.c.id, run.c.attempt, attempt.c.worker).join(attempt, (attempt.c.run_id == run.c.id) & same)
    found = tx.execute(query.where(run.c.status == "running", attempt.c.claim_key == key)).one_or_none()
    if found is None:
        return None
    if found.worker != worker.name:
        text = f"This key was used for a claim of another worker, {found.worker}; draw a new one for each claim."
        raise Conflict(text)
    secret = secrets.token_urlsafe(32)
    of_claim = (attempt.c.run_id == found.id) & (attempt.c.attempt == found.attempt)
    tx.execute(update(attempt).where(of_claim).values(secret_sha256=lease.digest(secret)))
    return _offer(tx, lease.hold(tx, found.id, found.attempt, terms), worker.store, terms.ttl, secret)


def take(
    tx: Connection, among: Collection[int], worker: p.WorkerInfo, key: str | None, terms: Terms, at: datetime
) -> p.Claim | None:
    """The first of the candidates that still waits; None if others took all of them."""
    taken = (
        update(run)
        .where(or_(QUEUED, _lost(terms)))
        .values(
            status="running",
            attempt=run.c.attempt + 1,
            failures=run.c.failures + case((run.c.status == "running", 1), else_=0),
            worker=worker.name,
            device=worker.device,
            lease_until=terms.until,
            phase=STARTING,  # and no longer where a lost worker was
            phase_done=None,
            phase_total=None,
            phase_since=None,
            error=None,
            started_at=case((run.c.started_at.is_(None), at), else_=run.c.started_at),
        )
        .returning(run)
    )
    tries = (tx.execute(taken.where(run.c.id == run_id)).mappings().one_or_none() for run_id in among)
    row = next((row for row in tries if row is not None), None)
    if row is None:
        return None
    before = (attempt.c.run_id == row["id"]) & (attempt.c.attempt == row["attempt"] - 1)
    if tx.execute(select(attempt.c.attempt).where(before, attempt.c.outcome.is_(None))).first():
        text = f"attempt {row['attempt'] - 1} ended: its worker was not heard any more"
        events.log(tx, row["id"], row["attempt"] - 1, p.LogLine(level="warning", message=text), at)
    secret = secrets.token_urlsafe(32)
    tx.execute(
        insert(attempt).values(
            run_id=row["id"],
            attempt=row["attempt"],
            worker=worker.name,
            secret_sha256=lease.digest(secret),
            claim_key=key,
            claimed_at=at,
            heard_at=at,
        )
    )
    events.record(tx, row["id"], "status", {"status": "running", "requested": row["requested"]}, at)
    return _offer(tx, row, worker.store, terms.ttl, secret)


def _offer(tx: Connection, row: RowMapping, store: str, ttl: float, secret: str) -> p.Claim:
    trunk = history.segments(tx, row["id"])[:-1]
    rows = [one for one in reversed(checkpoints.live(tx, row["id"])) if one["store"] == store]  # the most steps first
    trunk_id = repeats = None
    if trunk:
        begins, trunk_id, repeats = _origin(tx, row["id"], trunk[-1], store)
        rows += [begins] if begins is not None else []
    saved = [checkpoints.reference(one) for one in rows]
    source = checkpoints.named_by(tx, row["config"]["model"]["source"])
    replayed = commit = None
    if row["kind"] == "replay":
        original = runs.row_of(tx, row["config"]["run"])
        replayed, commit = ReplayedRun(config=original["config"]), original["model_commit"]
        if row["config"]["checkpoint"]:  # the run goes on from there, and the model that it began with is another
            trunk_id = source.run_id if source is not None and source.run_id != original["id"] else None
            saved, source = [source] if source else [], checkpoints.named_by(tx, row["config"]["origin"] or "")
    return p.Claim(
        run_id=row["id"],
        name=row["name"],
        attempt=row["attempt"],
        secret=secret,
        config=row["config"],
        lease_seconds=ttl,
        resume=saved[0] if saved else None,
        earlier=saved[1:],
        source_checkpoint=source,
        reward_checkpoints=checkpoints.reward_references(tx, row["config"]),
        model_commit=row["model_commit"] or commit,
        kept=retention.kept(tx, row["id"], row["config"], store),
        replayed=replayed,
        scored_by=reward_texts.binding(tx, row["id"]),
        forked_at=trunk[-1].last + 1 if trunk else None,
        trunk_config=None if trunk_id is None else _config_of(tx, trunk_id),
        repeats=repeats,
    )


def _origin(
    tx: Connection, run_id: int, trunk: history.Segment, store: str
) -> tuple[RowMapping | None, int, dict[str, Json] | None]:
    """Of a fork: the checkpoint of the trunk from which it goes on, the run whose configuration that has, and how the steps after it were
    trained, if they are to be done again first."""
    forked_at = trunk.last + 1
    begins = replays.start_of(tx, trunk.run_id, forked_at)
    whose = trunk.run_id if begins is None else begins["run_id"]
    here = begins["store"] == store if begins is not None else len(history.segments(tx, trunk.run_id)) == 1
    if begins is not None and begins["step"] == forked_at:
        return begins if here else None, whose, None
    # any worker goes on from a checkpoint of the fork's own, and not every one can do steps again
    if not here or checkpoints.live(tx, run_id):
        return None, whose, None
    return begins, whose, _config_of(tx, trunk.run_id)


def _config_of(tx: Connection, run_id: int) -> dict[str, Json]:
    """Of a run that may be deleted and stay as a trunk."""
    config: dict[str, Json] = tx.execute(select(run.c.config).where(run.c.id == run_id)).scalar_one()
    return config
