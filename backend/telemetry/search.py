"""Literal search in texts: a substring, without regard to capitals and to how letters are composed (storage.folding).

What SQLite alone can do is here and nowhere else.

SQLite has an index of trigrams: it names the rows that have the trigrams of a term, or, for a term of one or two characters, one
of those that begin with it. Some have them elsewhere, so each is looked at. Where the index does not help (a term that very many
rows have, another database), the run's rows are looked at in the order of the list until the page is full.
"""

import json
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Select, Table, and_, func, select, text

from backend.storage import history
from backend.storage.folding import folded
from backend.storage.tables import completion, prompt_group

MOST = 20_000  # rows that are looked at one by one; a term that more rows have is soon met in any order
FEW = 5_000  # the same if only some of the run's rows are read anyway
ENOUGH = 32  # trigrams of a long term; the rest is seen in the row
BEGINNINGS = 200  # trigrams that begin with a short term; what more do is in very many rows
LAST = "\U0010ffff"  # the character behind all others
INDEXES = {"completion": "completion_trigrams", "prompt_group": "prompt_trigrams"}


def narrow(
    tx: Connection, query: Select[Any], table: Table, run_id: int, searched: Column[Any], term: str | None
) -> Select[Any]:
    """The query over the rows of a run, or over those of them that have the term."""
    own = history.in_segments(table, history.segments(tx, run_id))
    if not term:
        return query.where(own)
    query = query.where(contains(tx, searched, term))
    ids = candidates(tx, table, run_id, term, MOST)
    return query.where(own if ids is None else among(table, run_id, ids))


def narrow_few(
    tx: Connection, query: Select[Any], table: Table, run_id: int, searched: Column[Any], term: str
) -> Select[Any]:
    """The same for a query that already names rows of the run, one by one: if the index does not help, only they are read."""
    query = query.where(contains(tx, searched, term))
    ids = candidates(tx, table, run_id, term, FEW)
    return query if ids is None else query.where(among(table, run_id, ids))


def contains(tx: Connection, searched: Column[Any], term: str) -> ColumnElement[bool]:
    """Whether a text, as it is compared, has the term in it."""
    compared, wanted = func.coalesce(searched.table.c.folded, searched), folded(term)
    if tx.dialect.name == "sqlite":
        return compared.contains(
            wanted, autoescape=True
        )  # LIKE knows no capitals here, and lower() would copy each text
    return compared.icontains(wanted, autoescape=True)


def among(table: Table, run_id: int, ids: list[int]) -> ColumnElement[bool]:
    """Whether a row is one of these, and of the run. A sum has no index: SQLite begins with the rows, not with the run."""
    numbers = func.json_each(json.dumps(ids)).table_valued("value")
    return and_(table.c.id.in_(select(numbers.c.value)), table.c.run_id + 0 == run_id)


def candidates(tx: Connection, table: Table, run_id: int, term: str, most: int) -> list[int] | None:
    """The only rows, of this run and of its time, that may have the term; None if the index does not help, or names more than `most`."""
    if tx.dialect.name != "sqlite" or len(history.segments(tx, run_id)) > 1:  # a fork: rows of several runs and times
        return None
    index, term = INDEXES[table.name], folded(term)
    if len(term) > 2:
        # the fewest that hold every letter: a search costs what reading their places costs, and each row is checked anyway
        starts = (*range(0, len(term) - 3, 3), len(term) - 3)
        trigrams: list[str] | None = list(dict.fromkeys(term[start : start + 3] for start in starts))[:ENOUGH]
    else:
        trigrams = _beginning(tx, index, term)
    if not trigrams:
        return None if trigrams is None else []
    # in double quotes nothing but those means anything
    quoted = ('"' + trigram.replace('"', '""') + '"' for trigram in trigrams)
    wanted = (" AND " if len(term) > 2 else " OR ").join(quoted)
    query = text(f"SELECT rowid FROM {index} WHERE {index} MATCH :wanted AND rowid BETWEEN :low AND :high LIMIT :most")
    low, high = _range(tx, table, run_id)
    found = list(tx.execute(query, {"wanted": wanted, "low": low, "high": high, "most": most + 1}).scalars())
    return found if len(found) <= most else None


def _beginning(tx: Connection, index: str, term: str) -> list[str] | None:
    """The trigrams of the index that begin with the term, the smallest first; None if there are too many.

    Each is found behind the one before, past all rows that have that one.
    """
    if any(sign.lower() != sign.upper() and not sign.isascii() for sign in term):
        return None  # how the index folds such letters is its own affair
    behind = f"SELECT term FROM {index}_places WHERE term >= {{}} AND term <= :last LIMIT 1"
    query = text(
        f"WITH RECURSIVE found(term) AS (SELECT ({behind.format(':first')}) UNION ALL "
        f"SELECT ({behind.format('found.term || char(1)')}) FROM found WHERE found.term IS NOT NULL LIMIT :most) "
        "SELECT term FROM found WHERE term IS NOT NULL"
    )
    first = term.lower()
    values = {"first": first, "last": first + 2 * LAST, "most": BEGINNINGS + 2}
    found = list(tx.execute(query, values).scalars())
    return found if len(found) <= BEGINNINGS else None


def _range(tx: Connection, table: Table, run_id: int) -> tuple[int, int]:
    """The numbers between which a run's rows lie; rows are numbered as they come."""
    # one query each: SQLite goes straight to the least or to the greatest, and for both at once through all of them
    ends = (select(end(prompt_group.c.id)).where(prompt_group.c.run_id == run_id) for end in (func.min, func.max))
    low, high = tx.execute(select(*(end.scalar_subquery() for end in ends))).one()
    if low is None or table is prompt_group:
        return low or 0, high or 0
    first = select(func.min(completion.c.group_id)).where(completion.c.group_id >= low).scalar_subquery()
    last = select(func.max(completion.c.group_id)).where(completion.c.group_id <= high).scalar_subquery()
    ids = select(func.min(completion.c.id), func.max(completion.c.id)).where(completion.c.group_id.in_([first, last]))
    low, high = tx.execute(ids).one()
    return low or 0, high or 0
