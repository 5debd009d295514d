"""Completions of a run as a list: filtered and sorted within one index, and searched."""

import re
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, select

from backend.contract import records as r
from backend.contract.inspection import CompletionHit
from backend.contract.queries import CompletionQuery
from backend.storage import paging
from backend.storage.tables import completion, prompt_group
from backend.telemetry import history, search

EXCERPT = 200  # characters
BEFORE = 60  # of them, before what was searched

COLUMNS = {
    "step": completion.c.step,
    "reward": completion.c.reward,
    "advantage": completion.c.advantage,
    "tokens": completion.c.token_count,
}


def page(tx: Connection, run_id: int, query: CompletionQuery) -> r.Page[CompletionHit]:
    """Live completions; those without the number that sorts come last."""
    live = select(completion.c.id).where(history.uncut(tx, completion, run_id), *_conditions(query))
    found = search.narrow(tx, live, completion, run_id, completion.c.text, query.search)
    ids, cursor = paging.find(tx, found.order_by(*_order(query.sort)), query)
    whole = select(
        completion,
        prompt_group.c.index.label("group_index"),
        prompt_group.c.prompt_id,
        paging.beginning(prompt_group.c.prompt),
    ).join(prompt_group, prompt_group.c.id == completion.c.group_id)
    rows = paging.fetch(tx, whole, completion.c.id, ids)
    return r.Page[CompletionHit](items=[_hit(row, query.search) for row in rows], next_cursor=cursor)


def _conditions(query: CompletionQuery) -> list[ColumnElement[bool]]:
    conditions = []
    if query.state is not None:
        conditions.append(completion.c.state == query.state)
    if query.finish_reason is not None:
        conditions.append(completion.c.finish_reason == query.finish_reason)
    for name, column in COLUMNS.items():
        low, high = getattr(query, f"{name}_min"), getattr(query, f"{name}_max")
        conditions += [column >= low] if low is not None else []
        conditions += [column <= high] if high is not None else []
    return conditions


def _order(sort: str) -> list[Any]:
    """The order of one of the indexes, or its reverse. A column that stood there twice would be sorted by once more."""
    columns = dict.fromkeys((COLUMNS[sort.removeprefix("-")], completion.c.step, completion.c.id))
    first, *rest = (column.desc() if sort.startswith("-") else column.asc() for column in columns)
    return [first.nulls_last(), *rest]


def _hit(row: RowMapping, term: str | None) -> CompletionHit:
    return CompletionHit.model_validate({**row, "excerpt": excerpt(row["text"], term)})


def excerpt(text: str, term: str | None) -> str:
    """About 200 characters around the first place of the term; without one the end, where the answer is."""
    place = re.search(re.escape(term), text, re.IGNORECASE) if term else None
    start = max(0, min(place.start() - BEFORE, len(text) - EXCERPT)) if place else max(0, len(text) - EXCERPT)
    end = max(start + EXCERPT, place.end()) if place else len(text)
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
