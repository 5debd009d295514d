"""What lies in the database: the runs by their role, and some groups and completions to open."""

import random
from dataclasses import dataclass

from backend.contract.client import Client

_LOOKED_AT = 40  # steps of the large run, and of each a few groups


@dataclass(frozen=True)
class Contents:
    """Numbers of what the parts open, drawn once with a seed."""

    large: int
    live: int
    compared: list[int]  # the large run and the long ones
    steps: list[int]  # of the large run, those with groups
    groups: list[int]
    completions: list[int]  # with tokens
    prompt_ids: list[str]


def contents(client: Client) -> Contents:
    """Look around."""
    runs = [*client.runs(limit=200).items]
    by_role: dict[str, list[int]] = {}
    for run in runs:
        by_role.setdefault(run.name.split()[0], []).append(run.id)
    large, live = by_role["large"][0], by_role["live"][0]
    draw = random.Random(0)
    steps = [one.step for one in client.steps(large)]
    groups, completions, prompts = [], [], []
    for step in draw.sample(steps, min(_LOOKED_AT, len(steps))):
        for row in draw.sample(client.groups(large, step=step, limit=100).items, 4):
            groups.append(row.id)
            prompts.append(row.prompt_id)
            completions += [one.id for one in client.group(row.id).completions if one.has_trace]
    return Contents(large, live, [*by_role["long"], large], steps, groups, completions, prompts)
