"""Which fields of a configuration may be swept, how a value gets into them, and what the runs of a sweep are called."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from backend.contract.base import Json
from dashboard.comparison.settings import cell, short_names
from dashboard.form.schema import (
    Choice,
    Constant,
    Field,
    Flag,
    Many,
    Real,
    Record,
    Union,
    Whole,
    changed_kind,
    fields_of,
    fresh,
)
from dashboard.form.sections import layout_of
from dashboard.stored import get, put
from dashboard.wording import label_of

# The recipe is a label; seeds are not a setting, and every sweep has its own control for them.
NOT_SWEPT = frozenset({"recipe", "budget.seed", "compute.processes", "compute.shards"})
Config = Mapping[str, Json]
Point = Mapping[str, Json]
"""Dotted path -> value: what one run of a sweep has that the base has not."""


@dataclass(frozen=True)
class Sweepable:
    """A field that may vary. `path` is where its value stands in a configuration: of a choice of kinds, its `.kind`."""

    path: str
    label: str
    field: Field

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers, which can be drawn from a range."""
        return isinstance(self.field, Whole | Real)

    @property
    def words(self) -> tuple[Json, ...] | None:
        """All the values there are; None where they cannot be listed."""
        none: tuple[Json, ...] = (None,) if self.field.optional else ()
        match self.field:
            case Flag() | Record():
                return (False, True)
            case Choice(several=False):
                return (*none, *self.field.options)
            case Union():
                return tuple(self.field.kinds)
        return None


def sweepable(config: Config) -> dict[str, Sweepable]:
    """The fields that this configuration has, by path: what most runs differ in first, then in the schema's order."""
    found = {one.path: one for one in _walk(fields_of(dict(config)), "", (), dict(config)) if one.path not in NOT_SWEPT}
    first = ("optimizer.learning_rate", *layout_of(config).numbers)
    return {path: found[path] for path in (*(path for path in first if path in found), *found)}


def value_at(one: Sweepable, config: Config) -> Json:
    """The field's value as a sweep would write it."""
    value = get(dict(config), one.path)
    return value is not None if isinstance(one.field, Record) else value


def place(base: Config, point: Point) -> tuple[dict[str, Json], dict[str, Json]]:
    """The base with the point's values, and those of them that it could take.

    Kinds come before the fields of kinds. A field that the chosen kind does not have is left out.
    """
    config, taken = dict(base), {}
    fields = sweepable(config)
    for path in sorted(point, key=lambda path: (path.count("."), not path.endswith(".kind"))):
        if path not in fields:
            continue
        field, value = fields[path].field, point[path]
        where = path.removesuffix(".kind") if isinstance(field, Union) else path
        old, new = get(config, where), value
        if isinstance(field, Union):  # another kind brings its own fields
            new = old if get(old, "kind") == value else changed_kind(field, old, str(value))
        elif isinstance(field, Record) and value:  # a part is there or not
            new = fresh(field) if old is None else old
        elif isinstance(field, Record):
            new = None
        config = cast("dict[str, Json]", put(config, where, new))
        taken[path] = value
        if isinstance(field, Union | Record):
            fields = sweepable(config)
    return config, {path: taken[path] for path in point if path in taken}


def _walk(field: Field, path: str, names: tuple[str, ...], value: Json) -> Iterator[Sweepable]:
    """The field and what is in it, as far as this value has it; `names` lead to it in words."""
    label = " › ".join(names)
    match field:
        case Constant():
            return
        case Union():
            yield Sweepable(f"{path}.kind", label, field)
            kind = field.kinds.get(str(get(value, "kind")))
            if kind is not None:
                yield from _inside(kind, path, names, value)
        case Record():
            if field.optional:
                yield Sweepable(path, label, field)
            if value is not None:
                yield from _inside(field, path, names, value)
        case Many():
            for place, item in enumerate(value if isinstance(value, list) else []):
                name = str(get(item, "name") or place + 1)
                if isinstance(field.item, Record):
                    yield from _walk(field.item, f"{path}.{place}", (*names, name), item)
                else:  # the kind of an element of a list is not a setting: its fields are
                    kind = field.item.kinds.get(str(get(item, "kind")), Record(""))
                    yield from _inside(kind, f"{path}.{place}", (*names, name), item)
        case _:
            yield Sweepable(path, label, field)


def _inside(record: Record, path: str, names: tuple[str, ...], value: Json) -> Iterator[Sweepable]:
    for inner in record.fields:
        named = isinstance(inner, Many)  # Rewards › correctness, not Rewards › Functions › correctness
        below = names if named and names else (*names, label_of(inner.name))
        yield from _walk(inner, f"{path}.{inner.name}" if path else inner.name, below, get(value, inner.name))


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
