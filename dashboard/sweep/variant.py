"""What the runs of a sweep are told apart by, beside their seeds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.contract.base import Json
from dashboard.comparison.settings import cell, short_names
from dashboard.sweep.fields import Config, Point, place

LONGEST = 180  # characters of a variant's name; with its seed it is the name of a run


@dataclass(frozen=True)
class Variant:
    """One configuration of the sweep, and the values that make it this one, by dotted path."""

    name: str
    config: dict[str, Json]
    values: Mapping[str, Json]


@dataclass(frozen=True)
class Plan:
    """What is to be queued, once with each seed; or why there is nothing to queue."""

    variants: Sequence[Variant]
    noun: str  # what a variant is called: recipe, combination
    title: str  # of the sweep, where nobody names it
    problems: Sequence[str] = ()
    view: str | None = None  # of the comparison that it leads to


def variants_of(base: Config, points: Sequence[Point]) -> list[Variant]:
    """The base with each point's values. Points that come to the same configuration are one: where a kind lacks a swept field."""
    found: dict[str, Variant] = {}
    for point in points:
        config, values = place(base, point)
        found.setdefault(json.dumps(config, sort_keys=True), Variant(named(values), config, values))
    return list(found.values())


def named(values: Point) -> str:
    """The values as the comparison writes them: learning_rate 1e-5 · group_size 8."""
    names = short_names(list(values))
    text = " · ".join(f"{names[path]} {cell(value)}" for path, value in values.items())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
