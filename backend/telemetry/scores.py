"""The numbers of a step, and how rewards and advantages were distributed over steps."""

import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from backend.contract.inspection import Distribution, GroupScores, StepScores
from backend.contract.queries import DistributionQuery, StepScoresQuery
from backend.storage import paging
from backend.storage.tables import completion, prompt_group
from backend.telemetry import history
from backend.telemetry.prompts import spread

BEGINNING = 200  # characters of a prompt
TRAINED = (
    "live",
    "zero_variance",
    "unscored",
)  # the states of groups that a step is made of; the others are shown beside it
CLOSE = 1e-9  # of their size: numbers nearer than that are one


def of_step(tx: Connection, run_id: int, step: int, query: StepScoresQuery) -> StepScores:
    """Live groups of a step, in order, without texts; none where the step is not there."""
    found = (
        select(prompt_group.c.id)
        .where(prompt_group.c.run_id == run_id, prompt_group.c.step == step)
        .where(history.uncut(tx, prompt_group, run_id))
        .order_by(prompt_group.c.index, prompt_group.c.id)
    )
    ids, cursor = paging.find(tx, found, query)
    rows = paging.fetch(tx, select(prompt_group), prompt_group.c.id, ids)
    numbers = [column for column in completion.c if column.name != "text"]
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
    chosen, bins = spread(_steps(tx, run_id, query), query.steps), query.bins
    column = completion.c[query.value]
    numbers = (
        select(completion.c.step, column)
        .where(completion.c.run_id == run_id, completion.c.step.in_(chosen), completion.c.state.in_(TRAINED))
        .where(history.uncut(tx, completion, run_id))
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


def _steps(tx: Connection, run_id: int, query: DistributionQuery) -> list[int]:
    trained = prompt_group.c.state.in_(TRAINED)
    steps = (
        select(prompt_group.c.step)
        .where(prompt_group.c.run_id == run_id, prompt_group.c.step >= (query.from_step or 0), trained)
        .where(history.uncut(tx, prompt_group, run_id))
        .group_by(prompt_group.c.step)
        .order_by(prompt_group.c.step)
    )
    if query.to_step is not None:
        steps = steps.where(prompt_group.c.step <= query.to_step)
    return list(tx.execute(steps).scalars())


def _edges(numbers: Sequence[float], bins: int) -> list[float]:
    """Equal bins from the lowest to the highest number; where those are one, from half below it to half above."""
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    size = max(1.0, abs(low), abs(high))
    if high / size - low / size < CLOSE:
        low, high = max(low - size / 2, -sys.float_info.max), min(high + size / 2, sys.float_info.max)
    return [low * (1 - place / bins) + high * (place / bins) for place in range(bins)] + [high]
