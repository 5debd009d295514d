"""Workers: what each has, when it was heard of, and what it held in the last day."""

from datetime import datetime, timedelta

from fastapi import APIRouter
from sqlalchemy import Connection, case, func, select, update

from backend.clock import Terms
from backend.contract import protocol as p
from backend.contract import records as r
from backend.runs.store import PRESENT
from backend.services import ServicesDep
from backend.storage.statements import upsert
from backend.storage.tables import attempt, run, worker

MOST = 1000  # workers in a list
DAY = 86_400.0
ASKS_PER_SECOND = 40  # of all idle workers together: a claim takes the backend a few milliseconds
HELD = 2_000  # times that are kept; a day of runs that take a minute has fewer


def seen(tx: Connection, info: p.WorkerInfo, now: float) -> None:
    """A worker asked for work and said what it has."""
    upsert(tx, worker, [{**info.model_dump(), "seen_at": now}])


def heard(tx: Connection, beat: p.Heartbeat, now: float) -> None:
    """A worker's heartbeat came, with its folder of rewards where that has changed."""
    values = beat.model_dump(include={"reward_files"}, exclude_none=True)
    tx.execute(update(worker).where(worker.c.name == beat.worker).values(seen_at=now, **values))


def ask_again_seconds(tx: Connection, terms: Terms) -> float:
    """When a worker that found nothing should ask again: the sooner the fewer there are, and before it would count as lost."""
    alive = select(func.count()).select_from(worker).where(worker.c.seen_at > terms.now - terms.ttl)
    return min(terms.ttl / 3, max(p.ASK_AGAIN_SECONDS, tx.execute(alive).scalar_one() / ASKS_PER_SECOND))


def recent(tx: Connection, now: float, silence: float) -> list[r.Worker]:
    """Workers heard of in the last day, with the run that each holds; alive unless silent for `silence` seconds."""
    held = (
        select(run.c.worker, run.c.id, run.c.name)
        .where(run.c.status == "running")
        .order_by(run.c.kind.desc(), run.c.id.desc())  # a training run before the sample served between its steps
    )
    runs = {name: (run_id, title) for name, run_id, title in tx.execute(held)}
    query = select(worker).where(worker.c.seen_at > now - DAY).order_by(worker.c.seen_at.desc()).limit(MOST)
    found = []
    for row in sorted(tx.execute(query).mappings(), key=lambda row: row["name"]):
        run_id, title = runs.get(row["name"], (None, None))
        since = max(0.0, now - row["seen_at"])
        alive = since <= silence
        facts = {"run_id": run_id, "run_name": title, "seconds_since_seen": since, "alive": alive}
        found.append(r.Worker.model_validate({**row, **facts}))
    return found


def use(tx: Connection, at: datetime) -> list[r.Held]:
    """The times for which workers held a run and that reach into the last day, the latest first."""
    goes_on = (run.c.status == "running") & (run.c.attempt == attempt.c.attempt)
    query = (
        select(
            attempt.c.worker,
            attempt.c.run_id,
            run.c.name.label("run_name"),
            attempt.c.claimed_at.label("since"),
            attempt.c.heard_at.label("until"),
            case((attempt.c.outcome.is_not(None), attempt.c.outcome), (goes_on, None), else_="lost").label("end"),
        )
        .join(run, run.c.id == attempt.c.run_id)
        .where(attempt.c.heard_at > at - timedelta(seconds=DAY), PRESENT)
        .order_by(attempt.c.claimed_at.desc(), attempt.c.run_id.desc())
        .limit(HELD)
    )
    rows = tx.execute(query).mappings()  # the wall clock may have been set back between the two stamps
    return [r.Held.model_validate({**row, "until": max(row["since"], row["until"])}) for row in rows]


def not_from_the_future(tx: Connection, now: float) -> None:
    """For a start: no worker was heard of later than now. One that was, by a clock that has been set back, would stay alive as long."""
    tx.execute(update(worker).where(worker.c.seen_at > now).values(seen_at=now))


router = APIRouter(prefix="/api/v1/workers", tags=["workers"])


@router.get("")
def list_workers(services: ServicesDep) -> r.Page[r.Worker]:
    """Every worker heard of in the last day."""
    with services.database.read() as tx:
        workers = recent(tx, services.clock.seconds(), silence=services.settings.lease_seconds)
    return r.Page[r.Worker](items=workers)


@router.get("/use")
def list_use(services: ServicesDep) -> r.Page[r.Held]:
    """What every worker held in the last day, the latest first."""
    with services.database.read() as tx:
        return r.Page[r.Held](items=use(tx, services.clock.stamp()))
