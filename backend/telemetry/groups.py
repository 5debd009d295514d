"""Groups and completions: stored whole, listed by what the list shows, read one by one."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, func, insert, or_, select

from backend.contract import records as r
from backend.contract.groups import CompletionData, Group, GroupReport, GroupSummary, StepSummary
from backend.errors import NotFound
from backend.storage.tables import attempt, completion, prompt_group
from backend.telemetry import history

ENDS = 80  # characters of the best and the worst text that a list shows
SORTS = {
    "index": prompt_group.c.index,
    "step": prompt_group.c.step,
    "reward_mean": prompt_group.c.reward_mean,
    "reward_std": prompt_group.c.reward_std,
}
SUMMARY = [column for column in prompt_group.c if column.name != "prompt_text"]


@dataclass(frozen=True)
class Filter:
    """Which groups, and in which order."""

    step: int | None = None
    prompt_id: str | None = None
    state: str | None = None
    search: str | None = None
    sort: str = "step"


def store(
    tx: Connection,
    run_id: int,
    attempt_: int,
    step: int,
    groups: Sequence[GroupReport],
    traced: Collection[tuple[int, int]],
) -> None:
    """Add the groups of a step. `traced` has the (group, completion) indices whose tokens were kept."""
    for group in groups:
        values = group.model_dump(exclude={"completions"})
        place = {"run_id": run_id, "attempt": attempt_, "step": step}
        values |= place | _shown(group.completions)
        group_id = tx.execute(insert(prompt_group).values(values).returning(prompt_group.c.id)).scalar_one()
        rows = [
            {
                **one.model_dump(),
                **place,
                "group_id": group_id,
                "state": group.state,
                "has_trace": (group.index, one.index) in traced,
            }
            for one in group.completions
        ]
        if rows:
            tx.execute(insert(completion), rows)


def _shown(completions: Sequence[CompletionData]) -> dict[str, Any]:
    """What lists show of the completions."""
    scored = [one for one in completions if one.reward is not None]
    best = max(scored, key=lambda one: one.reward or 0.0, default=None)
    worst = min(scored, key=lambda one: one.reward or 0.0, default=None)
    return {
        "rewards": [one.reward for one in completions],
        "advantages": [one.advantage for one in completions],
        "best": best.text[-ENDS:] if best else None,
        "worst": worst.text[-ENDS:] if worst else None,
    }


def page(tx: Connection, run_id: int, wanted: Filter, limit: int, offset: int) -> r.Page[GroupSummary]:
    """Live groups; those without the number that sorts come last."""
    query = (
        select(prompt_group)
        .join(attempt, history.of_attempt(prompt_group))
        .where(prompt_group.c.run_id == run_id, history.live(prompt_group.c.step))
    )
    query = _filtered(query, wanted).order_by(*_order(wanted.sort)).offset(offset).limit(limit + 1)
    rows = tx.execute(query).mappings().all()
    items = [GroupSummary.model_validate(dict(row)) for row in rows[:limit]]
    return r.Page[GroupSummary](items=items, next_cursor=str(offset + limit) if len(rows) > limit else None)


def _filtered(query: Select[Any], wanted: Filter) -> Select[Any]:
    if wanted.step is not None:
        query = query.where(prompt_group.c.step == wanted.step)
    if wanted.prompt_id is not None:
        query = query.where(prompt_group.c.prompt_id == wanted.prompt_id)
    if wanted.state is not None:
        query = query.where(prompt_group.c.state == wanted.state)
    if wanted.search:
        said = completion.c.text.icontains(wanted.search, autoescape=True)
        anywhere = select(1).where(completion.c.group_id == prompt_group.c.id, said).exists()
        query = query.where(or_(prompt_group.c.prompt_text.icontains(wanted.search, autoescape=True), anywhere))
    return query


def _order(sort: str) -> list[Any]:
    column = SORTS[sort.removeprefix("-")]
    first = column.desc() if sort.startswith("-") else column.asc()
    return [first.nulls_last(), prompt_group.c.step, prompt_group.c.index, prompt_group.c.id]


def get(tx: Connection, group_id: int) -> Group:
    """A group with its completions. Raises NotFound."""
    row = tx.execute(select(prompt_group).where(prompt_group.c.id == group_id)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"There is no group {group_id}.")
    return with_completions(tx, [row])[0]


def with_completions(tx: Connection, rows: Sequence[RowMapping]) -> list[Group]:
    """The groups of some rows, whole."""
    query = (
        select(completion)
        .where(completion.c.group_id.in_([row["id"] for row in rows]))
        .order_by(completion.c.group_id, completion.c.index)
    )
    members: dict[int, list[dict[str, Any]]] = {row["id"]: [] for row in rows}
    for one in tx.execute(query).mappings():
        members[one["group_id"]].append(dict(one))
    return [Group.model_validate({**row, "completions": members[row["id"]]}) for row in rows]


def steps(tx: Connection, run_id: int, after_step: int | None, limit: int) -> r.Page[StepSummary]:
    """The live steps that have groups, and how many are in which state."""
    counted = (
        select(prompt_group.c.step, prompt_group.c.state, func.count().label("groups"))
        .join(attempt, history.of_attempt(prompt_group))
        .where(prompt_group.c.run_id == run_id, history.live(prompt_group.c.step))
        .group_by(prompt_group.c.step, prompt_group.c.state)
        .order_by(prompt_group.c.step, prompt_group.c.state)
    )
    if after_step is not None:
        counted = counted.where(prompt_group.c.step > after_step)
    states: dict[int, dict[str, int]] = {}
    for step, state, count in tx.execute(counted):
        if step not in states and len(states) == limit:
            return r.Page[StepSummary](items=_summaries(states), next_cursor=str(max(states)))
        states.setdefault(step, {})[state] = count
    return r.Page[StepSummary](items=_summaries(states))


def _summaries(states: dict[int, dict[str, int]]) -> list[StepSummary]:
    return [StepSummary(step=step, states=counts) for step, counts in states.items()]
