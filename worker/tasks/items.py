"""Items: what a task asks, with an id that never changes, and the order in which they are drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from backend.contract.base import Json
from backend.contract.preference import DatasetPairs
from backend.contract.sample import SampleConfig
from backend.contract.task import Task, digest
from worker.errors import RunFailure

LONGEST_ID = 200
ChatMessage = dict[str, str]
T = TypeVar("T")


class TaskError(RunFailure):
    """The task has no items to train on: unreadable, incomplete, unknown or too small."""


Prompted = Task | SampleConfig | DatasetPairs
"""What says how a question becomes a prompt."""


@dataclass(frozen=True)
class Item:
    """One question of a task.

    `id` is the task's own: the same in every step, run and machine. `question` is as the task words it, `messages` the
    chat with its system prompt (None for a raw prompt). `verifier` says how the task itself checks an answer and
    `columns` keeps the row of a data set; both are JSON.
    """

    id: str
    question: str
    messages: tuple[ChatMessage, ...] | None
    answer: str | None
    verifier: Mapping[str, Json]
    columns: Mapping[str, Json] = field(default_factory=dict)
    source: str = ""  # of a mixture, the source's name
    row: int | None = field(default=None, compare=False)  # of a data set, its row, counted from 1


@dataclass(frozen=True)
class Items:
    """Items to train on, and others never trained on, in the order of evaluation; `parts` are those of each source, with its share."""

    train: Sequence[Item]
    held_out: Sequence[Item]
    parts: Sequence[tuple[Sequence[Item], float]] = ()


def item_id(kind: str, text: str) -> str:
    """`kind:text`, or `kind:` and a hash of the text where that would be too long."""
    plain = f"{kind}:{text}"
    return plain if len(plain) <= LONGEST_ID else f"{kind}:{digest(text)}"


def chat(prompted: Prompted, question: str) -> tuple[ChatMessage, ...] | None:
    """The question as a chat of one turn; None where the prompt is raw."""
    if prompted.prompt_format == "raw":
        return None
    return (*system_message(prompted), {"role": "user", "content": question})


def system_message(prompted: Prompted) -> tuple[ChatMessage, ...]:
    """The system prompt as a message; nothing where there is none."""
    return ({"role": "system", "content": prompted.system_prompt},) if prompted.system_prompt else ()


def draw(items: Sequence[T], *, cursor: int, count: int, seed: int, part: int = 0) -> list[T]:
    """The items at positions cursor … cursor + count of an endless sequence: one permutation after another.

    The permutation of an epoch depends on (seed, epoch, part) alone, so nothing but the cursor needs to be saved. Of a mixture,
    each source is a part of its own: rows of the same number in two of them are not drawn together. Part 0 draws as it would alone.
    """
    drawn: list[T] = []
    while len(drawn) < count:
        epoch, start = divmod(cursor + len(drawn), len(items))
        order = np.random.default_rng([seed, epoch, part]).permutation(len(items))
        drawn += [items[int(index)] for index in order[start : start + count - len(drawn)]]
    return drawn


def by_digest(items: Sequence[Item]) -> list[Item]:
    """The items in an order that has nothing to do with their content and never changes."""
    return sorted(items, key=lambda item: digest(item.id))


def prompt_item(prompted: Prompted, prompt: str, answer: str | None) -> Item:
    """A prompt that somebody wrote, with the answer that they expect, if any."""
    return Item(
        id=item_id("prompt", prompt),
        question=prompt,
        messages=chat(prompted, prompt),
        answer=answer,
        verifier={"kind": "exact"},
    )
