"""Pairs of completions of which people said, one way or another, that the one is better; and the data set made of them.

A reward model or a DPO run reads from its rows the prompts that the policy read. A chat is written as messages, which the
tokenizer of the next run renders as it did for the policy: the system prompt of the task, and the question. A raw prompt is
written as its text, and so is what a data set's own conversation became: of that the records keep only what the model read.
One file is all of one kind; text is to be trained on with the prompt format `raw`.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, FromClause, Label, RowMapping, select

from backend.contract.base import Json, to_json
from backend.people.store import BETTER, WORSE
from backend.storage.tables import choice, completion, prompt_group, thumb

How = Literal["choice", "thumbs"]


@dataclass(frozen=True)
class Place:
    """The group that both completions are of."""

    id: int
    step: int
    index: int
    state: str
    prompt_id: str
    prompt: str
    prompt_text: str
    answer: str | None


@dataclass(frozen=True)
class Side:
    """One of the two completions."""

    id: int
    index: int
    text: str
    reward: float | None


Part = TypeVar("Part", Place, Side)


@dataclass(frozen=True)
class Pair:
    """People find the one better than the other: they chose it, or gave it a thumbs up and the other a thumbs down."""

    group: Place
    better: Side
    worse: Side
    how: How


@dataclass(frozen=True)
class ThumbedGroup:
    """A group's completions with a thumbs up, and those with a thumbs down."""

    group: Place
    up: Sequence[Side]
    down: Sequence[Side]


@dataclass(frozen=True)
class Judgements:
    """All that people said of a run's completions, also of steps that were done again after a resume: which of two texts is better does not
    depend on that. If there is a choice between two completions, their thumbs do not count. Two equal texts are not a pair.
    """

    chosen: Sequence[Pair]
    thumbed: Sequence[ThumbedGroup]

    def chosen_between(self) -> Mapping[int, set[frozenset[int]]]:
        """By group, the ids of the completions that each choice is between."""
        found: dict[int, set[frozenset[int]]] = defaultdict(set)
        for pair in self.chosen:
            found[pair.group.id].add(frozenset((pair.better.id, pair.worse.id)))
        return found

    def pairs(self) -> list[Pair]:
        """Each pair, the newest group first."""
        chosen_between = self.chosen_between()
        by_thumbs = (
            Pair(of.group, better, worse, "thumbs")
            for of in self.thumbed
            for better, worse in product(of.up, of.down)
            if frozenset((better.id, worse.id)) not in chosen_between[of.group.id]
        )
        pairs = [pair for pair in (*self.chosen, *by_thumbs) if pair.better.text != pair.worse.text]
        pairs.sort(key=lambda pair: (-pair.group.id, pair.better.index, pair.worse.index))
        return pairs


def judgements_of(tx: Connection, run_id: int) -> Judgements:
    """What people said of a run's completions."""
    group = _columns(Place, prompt_group, "group")
    # the sum keeps SQLite from beginning with all groups of the run: judgements are few
    in_run = prompt_group.c.run_id + 0 == run_id
    choices = (
        select(*group, *_columns(Side, BETTER, "better"), *_columns(Side, WORSE, "worse"))
        .select_from(choice)
        .join(prompt_group, prompt_group.c.id == choice.c.group_id)
        .join(BETTER, BETTER.c.id == choice.c.better_id)
        .join(WORSE, WORSE.c.id == choice.c.worse_id)
    )
    chosen = [
        Pair(_read(Place, row, "group"), _read(Side, row, "better"), _read(Side, row, "worse"), "choice")
        for row in tx.execute(choices.where(in_run)).mappings()
    ]
    thumbs = (
        select(thumb.c.thumb, *group, *_columns(Side, completion, "own"))
        .select_from(thumb)
        .join(completion, completion.c.id == thumb.c.completion_id)
        .join(prompt_group, prompt_group.c.id == completion.c.group_id)
    )
    by_group: dict[int, list[RowMapping]] = defaultdict(list)
    for row in tx.execute(thumbs.where(in_run)).mappings():
        by_group[row["group_id"]].append(row)
    thumbed = []
    for rows in by_group.values():
        up, down = ([_read(Side, row, "own") for row in rows if row["thumb"] == what] for what in ("up", "down"))
        thumbed.append(ThumbedGroup(_read(Place, rows[0], "group"), up, down))
    return Judgements(chosen, thumbed)


def _columns(kind: type[Part], table: FromClause, part: str) -> list[Label[Any]]:
    return [table.c[name].label(f"{part}_{name}") for name in kind.__dataclass_fields__]


def _read(kind: type[Part], row: RowMapping, part: str) -> Part:
    return kind(**{name: row[f"{part}_{name}"] for name in kind.__dataclass_fields__})


Config = Mapping[str, Json]


def lines(run_id: int, config: Config, pairs: Sequence[Pair]) -> Iterator[bytes]:
    """One JSON object a line: prompt, chosen, rejected, and where they come from; of the pairs that can be trained on.

    Those are all but pairs of probes, whose prompts are held out from training, and, if prompts are texts, those with an
    empty side: no reader takes an empty text for an answer.
    """
    settings, trained_on = _prompt_settings(config), [pair for pair in pairs if not of_probe(pair)]
    chat = chat_of(config, [pair.group for pair in trained_on])
    for pair in trained_on:
        if not chat and not (pair.better.text and pair.worse.text):
            continue
        texts: dict[str, Json] = {
            "prompt": pair.group.prompt_text,
            "chosen": pair.better.text,
            "rejected": pair.worse.text,
        }
        origin: dict[str, Json] = {
            "run": run_id,
            "step": pair.group.step,
            "group": pair.group.id,
            "chosen_index": pair.better.index,
            "rejected_index": pair.worse.index,
            "chosen_reward": pair.better.reward,
            "rejected_reward": pair.worse.reward,
            "how": pair.how,
        }
        yield to_json({**(_as_chat(settings, pair) if chat else texts), **origin}).encode() + b"\n"


def chat_of(config: Config, groups: Sequence[Place]) -> bool:
    """Whether the prompts of these groups, which are trained on, are written as chats."""
    settings = _prompt_settings(config)
    return settings.get("prompt_format", "chat") == "chat" and all(
        _asks_one_question(settings, group) for group in groups
    )


def of_probe(pair: Pair) -> bool:
    """Whether the pair's prompt is held out from training."""
    return pair.group.state == "probe"


def _prompt_settings(config: Config) -> Config:
    """Where the stored configuration says how a question becomes a prompt: in its task, or in a sample's own fields."""
    task = config.get("task")
    return task if isinstance(task, dict) else config


def _as_chat(settings: Config, pair: Pair) -> dict[str, Json]:
    system = settings.get("system_prompt")
    before = [_message("system", system)] if isinstance(system, str) and system else []
    return {
        "prompt": [*before, _message("user", pair.group.prompt)],
        "chosen": [_message("assistant", pair.better.text)],
        "rejected": [_message("assistant", pair.worse.text)],
    }


def _message(role: str, content: str) -> Json:
    return {"role": role, "content": content}


def _asks_one_question(settings: Config, group: Place) -> bool:
    """Whether the prompt was the system prompt and the question, and nothing else.

    Only a data set's row may be a conversation instead. A row that is a text is known by its id, a hash of the text.
    """
    if not group.prompt:
        return False
    if settings.get("kind") != "dataset":
        return True
    before, _, after = str(settings.get("template", "{prompt}")).partition("{prompt}")
    if not (group.prompt.startswith(before) and group.prompt.endswith(after)):
        return False
    text = group.prompt[len(before) : len(group.prompt) - len(after)]
    return group.prompt_id == f"dataset:{sha256(json.dumps([text, group.answer]).encode()).hexdigest()[:32]}"
