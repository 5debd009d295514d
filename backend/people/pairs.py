"""Pairs of completions of which people said, one way or another, that the one is better."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from sqlalchemy import Connection, FromClause, Label, RowMapping, Select, select

from backend.people.store import BETTER, WORSE
from backend.storage.people_tables import choice, thumb
from backend.storage.tables import completion, prompt_group

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


@dataclass(frozen=True)
class Pair:
    """People find the one better than the other: they chose it, or gave it a thumb up and the other a thumb down."""

    group: Place
    better: Side
    worse: Side
    how: How


@dataclass(frozen=True)
class Thumbed:
    """A group's completions with a thumb up, and those with a thumb down."""

    group: Place
    up: Sequence[Side]
    down: Sequence[Side]


@dataclass(frozen=True)
class Said:
    """All that people said of a run's completions, also of steps that a resume took back: which of two texts is better does not
    depend on that. Where a choice speaks of two completions, their thumbs do not count. Two equal texts are no pair.
    """

    chosen: Sequence[Pair]
    thumbed: Sequence[Thumbed]

    def spoken_of(self) -> Mapping[int, set[frozenset[int]]]:
        """By group, the ids of the completions that each choice is between."""
        found: dict[int, set[frozenset[int]]] = defaultdict(set)
        for pair in self.chosen:
            found[pair.group.id].add(frozenset((pair.better.id, pair.worse.id)))
        return found

    def pairs(self) -> list[Pair]:
        """Each pair, the newest group first."""
        spoken_of = self.spoken_of()
        by_thumbs = (
            Pair(of.group, better, worse, "thumbs")
            for of in self.thumbed
            for better, worse in product(of.up, of.down)
            if frozenset((better.id, worse.id)) not in spoken_of[of.group.id]
        )
        pairs = [pair for pair in (*self.chosen, *by_thumbs) if pair.better.text != pair.worse.text]
        pairs.sort(key=lambda pair: (-pair.group.id, pair.better.index, pair.worse.index))
        return pairs


def said_of(tx: Connection, run_id: int) -> Said:
    """What people said of a run's completions."""
    chosen = [
        Pair(_place(row), _side(row, "better"), _side(row, "worse"), "choice")
        for row in tx.execute(_chosen(run_id)).mappings()
    ]
    by_group: dict[int, list[RowMapping]] = defaultdict(list)
    for row in tx.execute(_thumbed(run_id)).mappings():
        by_group[row["group_id"]].append(row)
    thumbed = []
    for rows in by_group.values():
        up, down = ([_side(row, "own") for row in rows if row["thumb"] == what] for what in ("up", "down"))
        thumbed.append(Thumbed(_place(rows[0]), up, down))
    return Said(chosen, thumbed)


def _thumbed(run_id: int) -> Select[Any]:
    return _in_run(
        select(thumb.c.thumb, *_group_columns(), *_side_columns(completion, "own"))
        .select_from(thumb)
        .join(completion, completion.c.id == thumb.c.completion_id)
        .join(prompt_group, prompt_group.c.id == completion.c.group_id),
        run_id,
    )


def _chosen(run_id: int) -> Select[Any]:
    return _in_run(
        select(*_group_columns(), *_side_columns(BETTER, "better"), *_side_columns(WORSE, "worse"))
        .select_from(choice)
        .join(prompt_group, prompt_group.c.id == choice.c.group_id)
        .join(BETTER, BETTER.c.id == choice.c.better_id)
        .join(WORSE, WORSE.c.id == choice.c.worse_id),
        run_id,
    )


def _in_run(query: Select[Any], run_id: int) -> Select[Any]:
    # The sum keeps SQLite from beginning with all groups of the run: judgements are few.
    return query.where(prompt_group.c.run_id + 0 == run_id)


def _group_columns() -> list[Label[Any]]:
    return [prompt_group.c[name].label(f"group_{name}") for name in Place.__dataclass_fields__]


def _side_columns(table: FromClause, side: str) -> list[Label[Any]]:
    return [table.c[name].label(f"{side}_{name}") for name in Side.__dataclass_fields__]


def _place(row: RowMapping) -> Place:
    return Place(**{name: row[f"group_{name}"] for name in Place.__dataclass_fields__})


def _side(row: RowMapping, side: str) -> Side:
    return Side(**{name: row[f"{side}_{name}"] for name in Side.__dataclass_fields__})
