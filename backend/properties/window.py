"""The completions of a window of steps, as they are looked at: all of a small window, of a large one groups spread evenly over it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from backend.contract.conversation import Turn, without_middle
from backend.contract.queries import PropertyQuery
from backend.properties.measures import READ, Completion
from backend.storage import history, statements
from backend.storage.tables import completion, prompt_group
from backend.telemetry.inspection import TRAINED

COMPLETIONS = 6_000
CHARACTERS = 8_000_000
"""What is read of a window at most: so much takes about a second to look at, on one core."""
AT_ONCE = 8  # groups that a query reads
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Seen:
    """A completion with what it is compared by."""

    id: int
    group: int
    index: int
    said: str  # by the policy, perhaps without its middle
    rewards: dict[str, float | None]  # raw, by component
    weights: dict[str, float | None]
    total: float | None
    whole: Completion


@dataclass(frozen=True)
class SeenGroup:
    """A group that was read."""

    id: int
    step: int
    index: int
    prompt_id: str
    prompt: str


@dataclass
class Window:
    """What was read, groups by step."""

    all_groups: int = 0
    groups: dict[int, SeenGroup] = field(default_factory=dict)
    completions: list[Seen] = field(default_factory=list)
    shortened: int = 0

    def components(self) -> list[str]:
        """The names of the reward components, in their order."""
        return list(dict.fromkeys(name for one in self.completions for name in one.rewards))

    def measured_only(self) -> set[str]:
        """The components that have the weight 0 wherever they stand."""
        moving = {name for one in self.completions for name, weight in one.weights.items() if weight != 0}
        return {*self.components()} - moving


def read(tx: Connection, run_id: int, query: PropertyQuery) -> Window:
    """The window's groups that were trained on; probes and groups that dynamic sampling took out are not."""
    ids = (
        select(prompt_group.c.id)
        .where(history.of_run(tx, prompt_group, run_id), prompt_group.c.state.in_(TRAINED))
        .where(prompt_group.c.step >= (query.from_step or 0))
        .order_by(prompt_group.c.step, prompt_group.c.index, prompt_group.c.id)
    )
    if query.to_step is not None:
        ids = ids.where(prompt_group.c.step <= query.to_step)
    numbers = list(tx.execute(ids).scalars())
    window, characters = Window(all_groups=len(numbers)), 0
    for some in _spread(numbers):
        if len(window.completions) >= COMPLETIONS or characters >= CHARACTERS:
            break
        characters += _add(tx, window, some)
    order = {
        group.id: place
        for place, group in enumerate(sorted(window.groups.values(), key=lambda one: (one.step, one.index)))
    }
    window.completions.sort(key=lambda one: (order[one.group], one.index))
    return window


def _spread(numbers: Sequence[int]) -> Iterator[list[int]]:
    """All numbers, a few at a time, in an order of which any beginning is spread evenly over them (a golden ratio sequence)."""
    order = sorted(range(len(numbers)), key=lambda place: place * _GOLDEN % 1)
    for start in range(0, len(order), AT_ONCE):
        yield [numbers[place] for place in order[start : start + AT_ONCE]]


def _add(tx: Connection, window: Window, ids: Sequence[int]) -> int:
    """Read these groups; returns how many characters they have."""
    draw, one = prompt_group.c, completion.c
    texts = map(statements.beginning, (draw.prompt, draw.prompt_text))
    rows = select(*(draw[name] for name in ("id", "step", "index", "prompt_id")), *texts)
    for row in statements.fetch(tx, rows, draw.id, ids):
        prompt = row["prompt"] or row["prompt_text"]
        window.groups[row["id"]] = SeenGroup(row["id"], row["step"], row["index"], row["prompt_id"], prompt)
    names = ("id", "group_id", "index", "text", "turns", "token_count", "finish_reason", "rewards", "reward")
    characters = 0
    for member in tx.execute(select(*(one[name] for name in names)).where(one.group_id.in_(ids))):
        seen, length = _seen(member, window.groups[member.group_id].prompt)
        window.completions.append(seen)
        window.shortened += length > READ
        characters += length
    return characters


def _seen(row: Any, prompt: str) -> tuple[Seen, int]:
    whole = Completion(
        text=row.text,
        turns=[Turn.model_validate(turn) for turn in row.turns or ()],
        token_count=row.token_count,
        finish_reason=row.finish_reason,
        prompt=prompt,
    )
    said = whole.said
    seen = Seen(
        id=row.id,
        group=row.group_id,
        index=row.index,
        said=without_middle(said, READ),
        rewards={score["name"]: score["raw"] for score in row.rewards},
        weights={score["name"]: score["weight"] for score in row.rewards},
        total=row.reward,
        whole=whole,
    )
    return seen, len(said)
