"""A run's log."""

from sqlalchemy import Connection, select

from backend.contract import records as r
from backend.storage.tables import log_line


def page(tx: Connection, run_id: int, after_id: int, limit: int) -> r.Page[r.LogRecord]:
    """Lines of all attempts, oldest first, after the one with number `after_id`."""
    query = (
        select(log_line)
        .where(log_line.c.run_id == run_id, log_line.c.id > after_id)
        .order_by(log_line.c.id)
        .limit(limit + 1)
    )
    rows = tx.execute(query).mappings().all()
    items = [r.LogRecord.model_validate(dict(row)) for row in rows[:limit]]
    return r.Page[r.LogRecord](items=items, next_cursor=str(items[-1].id) if len(rows) > limit else None)
