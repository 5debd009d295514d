"""A run's records seen as a whole: its prompts through time, a step in numbers, and distributions over steps."""

import hashlib
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, case, func, select

from backend.contract import records as r
from backend.contract.inspection import CommonPrompt, Distribution, GroupScores, PromptSummary, StepScores
from backend.contract.queries import CommonPromptQuery, DistributionQuery, PromptQuery, StepScoresQuery
from backend.storage import history, statements
from backend.storage.tables import completion, prompt_group
from backend.telemetry import search

BEGINNING = 200  # characters of a prompt
# the states of groups that a step is made of; the others are shown beside it
TRAINED = ("live", "zero_variance", "unscored")
CLOSE = 1e-9  # of their size: numbers nearer than that are one
POINTS = 40  # of the rewards of a prompt that a list shows


def prompts(tx: Connection, run_id: int, query: PromptQuery) -> r.Page[PromptSummary]:
    """Prompts of the live groups, searched in what the model first read; those whose rewards did not change come last."""
    live = (history.of_run(tx, prompt_group, run_id),)
    found = select(prompt_group.c.prompt_id).where(*live)
    if query.search:
        firsts = select(func.min(prompt_group.c.id)).where(*live).group_by(prompt_group.c.prompt_id)
        said = select(prompt_group.c.prompt_id).where(prompt_group.c.id.in_(firsts))
        said = search.narrow_few(tx, said, prompt_group, run_id, prompt_group.c.prompt_text, query.search)
        found = found.where(prompt_group.c.prompt_id.in_(said))
    found = found.group_by(prompt_group.c.prompt_id).order_by(*_order(tx, run_id, query.sort))
    ids, cursor = statements.find(tx, found, query)
    return r.Page[PromptSummary](items=_summaries(tx, run_id, ids), next_cursor=cursor)


class _Drawn(NamedTuple):
    """A prompt that a run has drawn; `text` is a digest, spaces at its ends aside: trainers have ids of their own, and templates."""

    text: bytes
    prompt_id: str
    draws: int
    probes: int


COMPARED, OF_A_RUN = 100_000, 20_000
"""Prompts in which others are looked for, those drawn most often: of all runs together, and of each."""


def common(tx: Connection, query: CommonPromptQuery) -> r.Page[CommonPrompt]:
    """Prompts that several of the runs have drawn, by their texts; of a single run, all of its own."""
    by_text: dict[bytes, dict[int, _Drawn]] = defaultdict(dict)
    most = min(OF_A_RUN, COMPARED // len(query.runs))
    for run_id in dict.fromkeys(query.runs):
        for one in _drawn(tx, run_id, query.search, most):
            by_text[one.text].setdefault(run_id, one)  # of a text that has several ids the one drawn most often
    least = min(2, len(set(query.runs)))
    found = [drawn for drawn in by_text.values() if len(drawn) >= least]

    def rank(drawn: dict[int, _Drawn]) -> tuple[bool, int, int]:
        return not any(one.probes for one in drawn.values()), -len(drawn), -sum(one.draws for one in drawn.values())

    chosen = sorted(found, key=rank)[: query.limit]
    items: list[dict[int, PromptSummary]] = [{} for _ in chosen]
    for run_id in dict.fromkeys(query.runs):
        places = [place for place, drawn in enumerate(chosen) if run_id in drawn]
        ids = [chosen[place][run_id].prompt_id for place in places]
        for place, summary in zip(places, _summaries(tx, run_id, ids) if ids else (), strict=True):
            items[place][run_id] = summary
    return r.Page[CommonPrompt](items=[CommonPrompt(draws=draws) for draws in items])


def _drawn(tx: Connection, run_id: int, term: str | None, most: int) -> Iterator[_Drawn]:
    """The prompts that a run has drawn most often, in that order. An index counts them; of each, one row is read."""
    draw = prompt_group.c
    counted = (
        select(
            func.min(draw.id).label("first"),
            func.count().label("draws"),
            func.sum(case((draw.state == "probe", 1), else_=0)).label("probes"),
        )
        .where(history.of_run(tx, prompt_group, run_id))
        .group_by(draw.prompt_id)
        .order_by(func.count().desc(), draw.prompt_id)
        .limit(most)
        .subquery()
    )
    rows = select(draw.prompt_id, draw.prompt, draw.prompt_text, counted.c.draws, counted.c.probes)
    rows = rows.join(counted, counted.c.first == draw.id).order_by(counted.c.draws.desc(), draw.prompt_id)
    if term:
        rows = search.narrow_few(tx, rows, prompt_group, run_id, draw.prompt_text, term)
    for row in tx.execute(rows):
        text = (row.prompt or row.prompt_text).strip().encode()
        yield _Drawn(hashlib.sha256(text).digest(), row.prompt_id, row.draws, row.probes)


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
        draw.c.prompt_id == prompt_group.c.prompt_id, draw.c.reward_mean.is_not(None)
    )
    return query.where(history.of_run(tx, draw, run_id)).order_by(*order).limit(1).scalar_subquery()


def _summaries(tx: Connection, run_id: int, prompt_ids: Sequence[str]) -> list[PromptSummary]:
    draw = prompt_group.c
    query = (
        select(draw.prompt_id, draw.id, draw.step, draw.state, draw.reward_mean)
        .where(draw.prompt_id.in_(prompt_ids), history.of_run(tx, prompt_group, run_id))
        .order_by(draw.prompt_id, draw.step, draw.id)
    )
    draws: dict[str, list[Any]] = defaultdict(list)
    for row in tx.execute(query):
        draws[row.prompt_id].append(row)
    firsts = [draws[prompt_id][0].id for prompt_id in prompt_ids]
    words = statements.fetch(tx, select(draw.id, statements.beginning(draw.prompt)), draw.id, firsts)
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


def step_scores(tx: Connection, run_id: int, step: int, query: StepScoresQuery) -> StepScores:
    """Live groups of a step, in order, without texts; no groups if the run does not have the step."""
    found = (
        select(prompt_group.c.id)
        .where(prompt_group.c.step == step, history.of_run(tx, prompt_group, run_id))
        .order_by(prompt_group.c.index, prompt_group.c.id)
    )
    ids, cursor = statements.find(tx, found, query)
    rows = statements.fetch(tx, select(prompt_group), prompt_group.c.id, ids)
    numbers = [column for column in completion.c if column.name not in ("text", "folded")]
    one = completion.c
    members = select(*numbers).where(one.group_id.in_(ids)).order_by(one.group_id, one.index)
    completions: dict[int, list[Any]] = defaultdict(list)
    for member in tx.execute(members).mappings():
        completions[member["group_id"]].append(dict(member))
    groups = [
        GroupScores.model_validate({**row, "prompt": row["prompt"][:BEGINNING], "completions": completions[row["id"]]})
        for row in rows
    ]
    return StepScores(run_id=run_id, step=step, groups=groups, next_cursor=cursor)


def distribution(tx: Connection, run_id: int, query: DistributionQuery) -> Distribution:
    """Histograms of what was trained on, at steps with groups that are spread over the range, all on the same bins."""
    steps = (
        select(prompt_group.c.step)
        .where(history.of_run(tx, prompt_group, run_id), prompt_group.c.state.in_(TRAINED))
        .where(prompt_group.c.step >= (query.from_step or 0))
        .group_by(prompt_group.c.step)
        .order_by(prompt_group.c.step)
    )
    if query.to_step is not None:
        steps = steps.where(prompt_group.c.step <= query.to_step)
    chosen, bins = spread(list(tx.execute(steps).scalars()), query.steps), query.bins
    column = completion.c[query.value]
    numbers = (
        select(completion.c.step, column)
        .where(history.of_run(tx, completion, run_id))
        .where(completion.c.step.in_(chosen), completion.c.state.in_(TRAINED))
    )
    rows = tx.execute(numbers).all()
    edges = _edges([number for _, number in rows if number is not None], bins)
    at = {step: place for place, step in enumerate(chosen)}
    counts, missing = [[0] * bins for _ in chosen], [0] * len(chosen)
    for step, number in rows:
        if number is None:
            missing[at[step]] += 1
        else:
            counts[at[step]][min(bisect_right(edges, number), bins) - 1] += 1
    return Distribution(run_id=run_id, value=query.value, edges=edges, steps=chosen, counts=counts, missing=missing)


def _edges(numbers: Sequence[float], bins: int) -> list[float]:
    """Equal bins from the lowest to the highest number; if they are one number, from half below it to half above."""
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    size = max(1.0, abs(low), abs(high))
    if high / size - low / size < CLOSE:
        low, high = max(low - size / 2, -sys.float_info.max), min(high + size / 2, sys.float_info.max)
    return [low * (1 - place / bins) + high * (place / bins) for place in range(bins)] + [high]
