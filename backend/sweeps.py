"""Sweeps: runs that were queued together, to be compared. They are created like any other runs, all or none."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from fastapi import APIRouter
from sqlalchemy import Connection, func, insert, select

from backend.contract import records as r
from backend.contract.queries import PageQuery
from backend.errors import Invalid, NotFound
from backend.field_errors import FieldError
from backend.lifecycle import commands, creation
from backend.runs.store import PRESENT, WAITING, progress_from_row
from backend.services import IdempotencyKey, PageAsked, RowId, ServicesDep, with_reserve
from backend.storage.statements import newest_first
from backend.storage.tables import run, sweep
from backend.uploads import columns as uploads


def get(tx: Connection, sweep_id: int) -> r.Sweep:
    """One sweep with its runs. Raises NotFound."""
    row = tx.execute(select(sweep).where(sweep.c.id == sweep_id)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"There is no sweep {sweep_id}.")
    rows = tx.execute(select(run).where(run.c.sweep_id == sweep_id, PRESENT).order_by(run.c.id)).mappings()
    runs = [{**one, "progress": progress_from_row(one)} for one in rows]
    statuses = Counter(one["status"] for one in runs)
    return r.Sweep.model_validate(dict(row) | {"statuses": statuses, "runs": runs})


def page(tx: Connection, query: PageQuery) -> r.Page[r.SweepSummary]:
    """Sweeps, newest first."""
    rows, cursor = newest_first(tx, select(sweep), sweep.c.id, query)
    statuses: dict[int, dict[str, int]] = {row["id"]: {} for row in rows}
    each = select(run.c.sweep_id, run.c.status, func.count()).where(run.c.sweep_id.in_(statuses), PRESENT)
    for sweep_id, status, runs in tx.execute(each.group_by(run.c.sweep_id, run.c.status)):
        statuses[sweep_id][status] = runs
    items = [r.SweepSummary.model_validate(dict(row) | {"statuses": statuses[row["id"]]}) for row in rows]
    return r.Page[r.SweepSummary](items=items, next_cursor=cursor)


def under_way(tx: Connection, sweep_id: int) -> list[int]:
    """Its runs that have not ended and were not asked to. Raises NotFound."""
    get(tx, sweep_id)
    under_way = run.c.status.in_(WAITING) & run.c.requested.not_in(r.STOPS)
    return list(tx.execute(select(run.c.id).where(run.c.sweep_id == sweep_id, under_way)).scalars())


def create(tx: Connection, body: r.SweepCreate, key: str | None, at: datetime) -> int:
    """The sweep's number. Raises what the creation of one of its runs raises, with its index, and Conflict for the key."""
    keyed = creation.under_key(tx, sweep, key, body)
    if isinstance(keyed, int):
        return keyed
    values = {"name": body.name, "total": len(body.runs), "created_at": at, **keyed}
    sweep_id: int = tx.execute(insert(sweep).values(values).returning(sweep.c.id)).scalar_one()
    for index, one in enumerate(body.runs):
        with naming(index):
            creation.create(tx, one, None, at, sweep_id=sweep_id)
    return sweep_id


@contextmanager
def naming(index: int) -> Iterator[None]:
    """Says of a refused configuration which run's it is: `runs.3.config.model.source`."""
    try:
        yield
    except Invalid as refusal:
        path = f"runs.{index}.config"
        raise Invalid(*(FieldError(f"{path}.{one.field}", one.message) for one in refusal.errors)) from None


router = APIRouter(prefix="/api/v1/sweeps", tags=["sweeps"])


@router.post("", status_code=201)
def create_sweep(services: ServicesDep, body: r.SweepCreate, idempotency_key: IdempotencyKey = None) -> r.Sweep:
    """Store and queue several runs, all or none."""
    with services.database.read() as tx:  # it may read files: not under the write lock
        runs = list(body.runs)
        for index, one in enumerate(body.runs):
            with naming(index):
                config = uploads.resolved(tx, services.settings.home, one.config)
                uploads.require_columns(tx, services.settings.home, config)
                runs[index] = one.model_copy(update={"config": config})
        body = body.model_copy(update={"runs": runs})
    with services.database.write() as tx:
        return get(tx, create(tx, body, idempotency_key, services.clock.stamp()))


@router.get("")
def list_sweeps(services: ServicesDep, query: PageAsked) -> r.Page[r.SweepSummary]:
    """Sweeps, newest first."""
    with services.database.read() as tx:
        return page(tx, query)


@router.get("/{sweep_id}")
def get_sweep(services: ServicesDep, sweep_id: RowId) -> r.Sweep:
    """One sweep with its runs."""
    with services.database.read() as tx:
        return get(tx, sweep_id)


@router.post("/{sweep_id}/stop")
@with_reserve
def stop_sweep(services: ServicesDep, sweep_id: RowId) -> r.Sweep:
    """Stop every run of it that has not ended; the others stay as they are."""
    with services.database.write() as tx:
        stopped = under_way(tx, sweep_id)
        for run_id in stopped:
            commands.command(tx, run_id, "stop", services.clock.stamp())
        answer = get(tx, sweep_id)
    for run_id in stopped:
        services.broadcast.ring(run_id)
    return answer
