"""Insert or replace, in the two dialects that we speak."""

from collections.abc import Mapping, Sequence
from functools import cache

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

Insert = postgresql.Insert | sqlite.Insert


def insert_into(dialect: str, table: Table) -> Insert:
    """An insert that can say what happens to a row that is there already."""
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)


def upsert(tx: Connection, table: Table, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert rows; one whose primary key exists takes the new values."""
    tx.execute(_statement(tx.dialect.name, table, tuple(rows[0])), list(rows))


@cache  # one for each use in the code; building it costs as much as running it
def _statement(dialect: str, table: Table, columns: tuple[str, ...]) -> Insert:
    key = [column.name for column in table.primary_key]
    statement = insert_into(dialect, table)
    fresh = {name: statement.excluded[name] for name in columns if name not in key}
    return statement.on_conflict_do_update(index_elements=key, set_=fresh)
