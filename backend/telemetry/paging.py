"""A page of a list in two steps: which rows, found in an index that covers the question, and then those rows alone."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Label, RowMapping, Select, func

LISTED = 20_000  # characters of a text that a list shows; the whole is answered with the thing itself


def beginning(column: ColumnElement[Any]) -> Label[Any]:
    """The beginning of a text, under the column's name: a page of whole ones has no bound."""
    return func.substr(column, 1, LISTED).label(getattr(column, "name", None))


def find(tx: Connection, query: Select[Any], limit: int, offset: int) -> tuple[list[Any], str | None]:
    """The first column of the rows from `offset` on, at most `limit` of them, and the cursor of the next page."""
    found = list(tx.execute(query.offset(offset).limit(limit + 1)).scalars())
    return found[:limit], str(offset + limit) if len(found) > limit else None


def fetch(tx: Connection, query: Select[Any], key: ColumnElement[Any], ids: Sequence[Any]) -> list[RowMapping]:
    """The rows whose key is one of `ids`, in that order; the query selects the key."""
    rows = {row[key]: row for row in tx.execute(query.where(key.in_(ids))).mappings()}
    return [rows[one] for one in ids]
