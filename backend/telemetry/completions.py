"""Completions of a run as a list: filtered and sorted within one index, and searched."""

import re
from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import ColumnElement, Connection, RowMapping, select

from backend.contract import records as r
from backend.contract.base import CleanText, Record
from backend.contract.groups import FinishReason, GroupState
from backend.contract.inspection import CompletionHit
from backend.storage.tables import completion, prompt_group
from backend.telemetry import history, paging, search

EXCERPT = 200  # characters
BEFORE = 60  # of them, before what was searched

Sort = Literal["step", "reward", "advantage", "tokens", "-step", "-reward", "-advantage", "-tokens"]
COLUMNS = {
    "step": completion.c.step,
    "reward": completion.c.reward,
    "advantage": completion.c.advantage,
    "tokens": completion.c.token_count,
}
Whole = Annotated[int | None, Field(ge=0, le=2**63 - 1)]


class Filter(Record):
    """Which completions, and in which order; ranges are inclusive, and what has no number lies in none."""

    search: Annotated[CleanText | None, Field(max_length=1000)] = None
    state: GroupState | None = None
    finish_reason: FinishReason | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    advantage_min: float | None = None
    advantage_max: float | None = None
    tokens_min: Whole = None
    tokens_max: Whole = None
    step_min: Whole = None
    step_max: Whole = None
    sort: Sort = "step"


def page(tx: Connection, run_id: int, wanted: Filter, limit: int, offset: int) -> r.Page[CompletionHit]:
    """Live completions; those without the number that sorts come last."""
    query = select(completion.c.id).where(history.uncut(tx, completion, run_id), *_fits(wanted))
    query = search.narrow(tx, query, completion, run_id, completion.c.text, wanted.search)
    ids, cursor = paging.find(tx, query.order_by(*_order(wanted.sort)), limit, offset)
    whole = select(
        completion,
        prompt_group.c.index.label("group_index"),
        prompt_group.c.prompt_id,
        paging.beginning(prompt_group.c.prompt),
    ).join(prompt_group, prompt_group.c.id == completion.c.group_id)
    rows = paging.fetch(tx, whole, completion.c.id, ids)
    return r.Page[CompletionHit](items=[_hit(row, wanted.search) for row in rows], next_cursor=cursor)


def _fits(wanted: Filter) -> list[ColumnElement[bool]]:
    conditions = []
    if wanted.state is not None:
        conditions.append(completion.c.state == wanted.state)
    if wanted.finish_reason is not None:
        conditions.append(completion.c.finish_reason == wanted.finish_reason)
    for name, column in COLUMNS.items():
        low, high = getattr(wanted, f"{name}_min"), getattr(wanted, f"{name}_max")
        conditions += [column >= low] if low is not None else []
        conditions += [column <= high] if high is not None else []
    return conditions


def _order(sort: Sort) -> list[Any]:
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
