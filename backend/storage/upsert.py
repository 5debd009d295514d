"""Insert or replace, in the two dialects that we speak."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def insert_into(tx: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An insert that can say what happens to a row that is there already."""
    return postgresql.insert(table) if tx.dialect.name == "postgresql" else sqlite.insert(table)


def upsert(tx: Connection, table: Table, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert rows; one whose primary key exists takes the new values."""
    key = [column.name for column in table.primary_key]
    statement = insert_into(tx, table)
    fresh = {name: statement.excluded[name] for name in rows[0] if name not in key}
    tx.execute(statement.on_conflict_do_update(index_elements=key, set_=fresh), list(rows))
