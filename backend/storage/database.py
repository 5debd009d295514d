"""Transactions: readers see one snapshot, writers queue for the write lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from sqlalchemy import Connection, Engine, create_engine, event, make_url

from backend.contract.base import to_json

WAL_BYTES = 64 * 2**20
"""What the write-ahead log keeps of the disk once it was larger."""


class _Cursor(Protocol):
    def execute(self, statement: str, /) -> object: ...
    def close(self) -> None: ...


class _Sqlite(Protocol):
    isolation_level: str | None

    def cursor(self) -> _Cursor: ...


class Database:
    """One engine for reading and one for writing.

    On SQLite a transaction that reads first and writes later fails at once when another has written between; so writers
    take the lock at BEGIN. They share one connection: waiting in the pool is fair, SQLite's own retry loop is not.
    """

    def __init__(self, url: str, *, busy_seconds: float = 5.0) -> None:
        self.is_sqlite = make_url(url).get_backend_name() == "sqlite"
        if self.is_sqlite:
            connect = {"timeout": busy_seconds, "check_same_thread": False}
            engine = partial(create_engine, url, connect_args=connect, json_serializer=to_json)
            self.writer = engine(pool_size=1, max_overflow=0, pool_timeout=busy_seconds)
            self.reader = engine(pool_size=8, max_overflow=32)
            _transactions(self.writer, begin="BEGIN IMMEDIATE", read_only=False)
            _transactions(self.reader, begin="BEGIN", read_only=True)
        else:
            self.writer = self.reader = create_engine(url, json_serializer=to_json, pool_pre_ping=True)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that commits on leaving, unless an exception leaves."""
        with self.writer.begin() as tx:
            yield tx

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A snapshot; never waits for a writer."""
        with self.reader.begin() as tx:
            yield tx

    def close(self) -> None:
        """Give the connections back to the operating system."""
        self.writer.dispose()
        self.reader.dispose()


def _transactions(engine: Engine, *, begin: str, read_only: bool) -> None:
    @event.listens_for(engine, "connect")
    def _connect(connection: _Sqlite, _record: object) -> None:
        connection.isolation_level = None  # the driver would begin too late: only before the first write
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        if read_only:
            cursor.execute("PRAGMA query_only=ON")
        else:
            # what was deleted is overwritten; some builds of SQLite do so by default
            cursor.execute("PRAGMA secure_delete=ON")
            cursor.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(tx: Connection) -> None:
        tx.exec_driver_sql(begin)
