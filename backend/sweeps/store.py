"""The SQL of sweeps: insert, read, list."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, func, insert, select

from backend.contract import records as r
from backend.contract.queries import PageQuery
from backend.errors import NotFound
from backend.runs.store import PRESENT, WAITING, progress_from_row
from backend.storage.paging import newest_first
from backend.storage.tables import run, sweep


def create(tx: Connection, name: str, total: int, key: str | None, digest: str | None, at: datetime) -> int:
    """A sweep without runs yet; its number."""
    values = {"name": name, "total": total, "idempotency_key": key, "idempotency_hash": digest, "created_at": at}
    sweep_id: int = tx.execute(insert(sweep).values(values).returning(sweep.c.id)).scalar_one()
    return sweep_id


def by_idempotency_key(tx: Connection, key: str) -> RowMapping | None:
    """The sweep that was created under a key."""
    return tx.execute(select(sweep).where(sweep.c.idempotency_key == key)).mappings().one_or_none()


def get(tx: Connection, sweep_id: int) -> r.Sweep:
    """One sweep with its runs. Raises NotFound."""
    row = tx.execute(select(sweep).where(sweep.c.id == sweep_id)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"There is no sweep {sweep_id}.")
    rows = tx.execute(select(run).where(run.c.sweep_id == sweep_id, PRESENT).order_by(run.c.id)).mappings()
    runs = [{**_named(one), "progress": progress_from_row(one)} for one in rows]
    statuses = Counter(one["status"] for one in runs)
    return r.Sweep.model_validate(dict(row) | {"statuses": statuses, "runs": runs})


def page(tx: Connection, query: PageQuery) -> r.Page[r.SweepSummary]:
    """Sweeps, newest first."""
    rows, cursor = newest_first(tx, select(sweep), sweep.c.id, query)
    statuses = _statuses(tx, [row["id"] for row in rows])
    items = [r.SweepSummary.model_validate(dict(row) | {"statuses": statuses[row["id"]]}) for row in rows]
    return r.Page[r.SweepSummary](items=items, next_cursor=cursor)


def under_way(tx: Connection, sweep_id: int) -> list[int]:
    """Its runs that have not ended and were not asked to. Raises NotFound."""
    get(tx, sweep_id)
    under_way = run.c.status.in_(WAITING) & run.c.requested.not_in(r.STOPS)
    return list(tx.execute(select(run.c.id).where(run.c.sweep_id == sweep_id, under_way)).scalars())


def _statuses(tx: Connection, sweep_ids: Sequence[int]) -> dict[int, dict[str, int]]:
    counted: dict[int, dict[str, int]] = {sweep_id: {} for sweep_id in sweep_ids}
    each = select(run.c.sweep_id, run.c.status, func.count()).where(run.c.sweep_id.in_(sweep_ids), PRESENT)
    for sweep_id, status, runs in tx.execute(each.group_by(run.c.sweep_id, run.c.status)):
        counted[sweep_id][status] = runs
    return counted


def _named(row: RowMapping) -> dict[str, Any]:
    return {name: row[name] for name in ("id", "name", "status")}
