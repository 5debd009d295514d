"""What a database is asked, and how it would answer."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, event


@contextmanager
def asked_here(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """Statements with their parameters, as this thread asks them: a sweep of the backend may come between in another."""
    asked: list[tuple[str, Any]] = []
    here = threading.get_ident()

    def note(_one: object, _two: object, statement: str, parameters: object, *_others: object) -> None:
        if threading.get_ident() == here:
            asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(engine, "before_cursor_execute", note)


def plan(tx: Connection, statement: str, parameters: Any) -> list[str]:
    """The steps of SQLite's plan."""
    return [str(row[3]) for row in tx.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
