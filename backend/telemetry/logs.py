"""A run's log."""

from datetime import datetime

from sqlalchemy import Connection, insert, select

from backend.contract import protocol as p
from backend.contract import records as r
from backend.contract.queries import LogQuery
from backend.storage.tables import log_line
from backend.telemetry import events

LOG_CHARACTERS = 500  # of a line, in its event


def add(tx: Connection, run_id: int, attempt: int, line: p.LogLine, at: datetime) -> None:
    """Write a line, and the event that shows its beginning."""
    tx.execute(insert(log_line).values(run_id=run_id, attempt=attempt, created_at=at, **line.model_dump()))
    events.record(tx, run_id, "log", {"level": line.level, "message": line.message[:LOG_CHARACTERS]}, at)


def page(tx: Connection, run_id: int, query: LogQuery) -> r.Page[r.LogRecord]:
    """Lines of all attempts, oldest first."""
    lines = (
        select(log_line)
        .where(log_line.c.run_id == run_id, log_line.c.id > query.after_id)
        .order_by(log_line.c.id)
        .limit(query.limit + 1)
    )
    rows = tx.execute(lines).mappings().all()
    items = [r.LogRecord.model_validate(dict(row)) for row in rows[: query.limit]]
    return r.Page[r.LogRecord](items=items, next_cursor=str(items[-1].id) if len(rows) > query.limit else None)
