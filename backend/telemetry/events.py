"""The run's events: what happened, in order, small enough to be replayed."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, RowMapping, func, insert, select

from backend.contract.base import Json
from backend.storage.tables import run_event


def record(tx: Connection, run_id: int, kind: str, payload: dict[str, Json], at: datetime) -> None:
    """Add an event: `status`, `step`, `checkpoint` or `log`."""
    tx.execute(insert(run_event).values(run_id=run_id, kind=kind, payload=payload, created_at=at))


def after(tx: Connection, run_id: int, event_id: int, limit: int = 500) -> Sequence[RowMapping]:
    """The events of a run that came after one, oldest first."""
    query = (
        select(run_event.c.id, run_event.c.kind, run_event.c.payload)
        .where(run_event.c.run_id == run_id, run_event.c.id > event_id)
        .order_by(run_event.c.id)
        .limit(limit)
    )
    return tx.execute(query).mappings().all()


def newest(tx: Connection, run_id: int) -> int:
    """The number of a run's newest event; 0 where there is none."""
    return tx.execute(select(func.max(run_event.c.id)).where(run_event.c.run_id == run_id)).scalar_one() or 0
