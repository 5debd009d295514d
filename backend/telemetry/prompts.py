"""The prompts of a run through time."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, case, func, select

from backend.contract import records as r
from backend.contract.inspection import PromptSummary
from backend.contract.queries import PromptQuery
from backend.storage import paging
from backend.storage.tables import prompt_group
from backend.telemetry import history, search

POINTS = 40  # of the rewards of a prompt that a list shows


def page(tx: Connection, run_id: int, query: PromptQuery) -> r.Page[PromptSummary]:
    """Prompts of the live groups, searched in what the model first read; those whose rewards did not change come last."""
    live = history.uncut(tx, prompt_group, run_id), prompt_group.c.run_id == run_id
    prompts = select(prompt_group.c.prompt_id).where(*live)
    if query.search:
        firsts = select(func.min(prompt_group.c.id)).where(*live).group_by(prompt_group.c.prompt_id)
        said = select(prompt_group.c.prompt_id).where(prompt_group.c.id.in_(firsts))
        said = search.narrow_few(tx, said, prompt_group, run_id, prompt_group.c.prompt_text, query.search)
        prompts = prompts.where(prompt_group.c.prompt_id.in_(said))
    prompts = prompts.group_by(prompt_group.c.prompt_id).order_by(*_order(tx, run_id, query.sort))
    found, cursor = paging.find(tx, prompts, query)
    return r.Page[PromptSummary](items=_summaries(tx, run_id, found), next_cursor=cursor)


def _order(tx: Connection, run_id: int, sort: str) -> list[Any]:
    name = sort.removeprefix("-")
    if name == "reward_change":
        first, last = (_reward(tx, run_id, latest=latest) for latest in (False, True))
        key: Any = case((func.count() > 1, last - first))
    else:
        key = {
            "draws": func.count(),
            "first_step": func.min(prompt_group.c.step),
            "last_step": func.max(prompt_group.c.step),
        }[name]
    return [(key.desc() if sort.startswith("-") else key.asc()).nulls_last(), prompt_group.c.prompt_id]


def _reward(tx: Connection, run_id: int, *, latest: bool) -> Any:
    """The mean reward of the first or the latest scored draw of a prompt."""
    draw = prompt_group.alias()
    order = (draw.c.step.desc(), draw.c.id.desc()) if latest else (draw.c.step, draw.c.id)
    query: Select[Any] = select(draw.c.reward_mean).where(
        draw.c.run_id == run_id, draw.c.prompt_id == prompt_group.c.prompt_id, draw.c.reward_mean.is_not(None)
    )
    return query.where(history.uncut(tx, draw, run_id)).order_by(*order).limit(1).scalar_subquery()


def _summaries(tx: Connection, run_id: int, prompt_ids: Sequence[str]) -> list[PromptSummary]:
    draw = prompt_group.c
    query = (
        select(draw.prompt_id, draw.id, draw.step, draw.state, draw.reward_mean)
        .where(draw.run_id == run_id, draw.prompt_id.in_(prompt_ids), history.uncut(tx, prompt_group, run_id))
        .order_by(draw.prompt_id, draw.step, draw.id)
    )
    draws: dict[str, list[Any]] = defaultdict(list)
    for row in tx.execute(query):
        draws[row.prompt_id].append(row)
    firsts = [draws[prompt_id][0].id for prompt_id in prompt_ids]
    words = paging.fetch(tx, select(draw.id, paging.beginning(draw.prompt)), draw.id, firsts)
    return [_summary(draws[one], row["prompt"]) for one, row in zip(prompt_ids, words, strict=True)]


def _summary(draws: Sequence[Any], prompt: str) -> PromptSummary:
    scored = [draw.reward_mean for draw in draws if draw.reward_mean is not None]
    return PromptSummary(
        prompt_id=draws[0].prompt_id,
        prompt=prompt,
        draws=len(draws),
        probes=sum(draw.state == "probe" for draw in draws),
        first_step=draws[0].step,
        last_step=draws[-1].step,
        reward_first=scored[0] if scored else None,
        reward_last=scored[-1] if scored else None,
        rewards=spread([draw.reward_mean for draw in draws], POINTS),
    )


def spread(values: Sequence[Any], most: int) -> list[Any]:
    """At most this number of the values, evenly spread, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    return [values[place * (len(values) - 1) // max(1, most - 1)] for place in range(most)]
