"""Statements that stores share: a page of a list, and insert or replace in the two dialects that we speak.

A page is read in two steps: which rows, found in an index that covers the question, and then those rows alone.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Label, RowMapping, Select, Table, func
from sqlalchemy.dialects import postgresql, sqlite

from backend.contract.queries import PageQuery

LISTED = 20_000  # characters of a text that a list shows; the whole is answered with the thing itself


def beginning(column: ColumnElement[Any]) -> Label[Any]:
    """The beginning of a text, under the column's name: a page of whole ones has no bound."""
    return func.substr(column, 1, LISTED).label(getattr(column, "name", None))


def newest_first(
    tx: Connection, rows: Select[Any], number: Column[int], query: PageQuery
) -> tuple[Sequence[RowMapping], str | None]:
    """The rows of a page, by descending number, and the cursor of the next page: the last number of this one."""
    if query.start is not None:
        rows = rows.where(number < query.start)
    found = tx.execute(rows.order_by(number.desc()).limit(query.limit + 1)).mappings().all()
    page = found[: query.limit]
    return page, str(page[-1][number]) if len(found) > query.limit else None


def find(tx: Connection, rows: Select[Any], query: PageQuery) -> tuple[list[Any], str | None]:
    """The first column of the rows of a page, and the cursor of the next page: how many rows come before it."""
    offset = query.start or 0
    found = list(tx.execute(rows.offset(offset).limit(query.limit + 1)).scalars())
    return found[: query.limit], str(offset + query.limit) if len(found) > query.limit else None


def fetch(tx: Connection, query: Select[Any], key: ColumnElement[Any], ids: Sequence[Any]) -> list[RowMapping]:
    """The rows whose key is one of `ids`, in that order; the query selects the key."""
    rows = {row[key]: row for row in tx.execute(query.where(key.in_(ids))).mappings()}
    return [rows[one] for one in ids]


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
