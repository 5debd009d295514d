"""Settings as what varies: any fields of a configuration, on a grid or drawn at random."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import streamlit as st

from backend.contract.base import Json
from dashboard.comparison.settings import cell, short_names
from dashboard.components.synced import whole_number
from dashboard.form.schema import Whole
from dashboard.format import count, plain
from dashboard.sweep.base import Base, choose_base
from dashboard.sweep.fields import Config, Plan, Sweepable, sweepable, value_at, variants_of
from dashboard.sweep.queue import MOST_RUNS
from dashboard.sweep.values import (
    NONE,
    EmptyRange,
    Range,
    Unreadable,
    bounds,
    draw,
    grid,
    read_bound,
    read_values,
    size,
    suggested,
    write_values,
)
from dashboard.wording import in_words

GRID, RANDOM = "Grid", "Random"
LINEAR, LOG = "linear", "log"
T = TypeVar("T")
NOUN = "combination"
VIEW = "Settings"  # of the comparison: a line through the fields for each run


def show_settings(bases: Sequence[Base]) -> Plan:
    """The base, the fields, their values."""
    st.caption(
        "The runs share one configuration and differ only in the fields that you choose. There is one run per seed for every combination "
        "of the values that you list, or for each random choice of values."
    )
    base = choose_base("Base configuration", bases, "Every run takes the fields that are not swept from here\\.")
    fields = sweepable(base.config)
    way, picker = st.columns([1, 3])
    how = way.segmented_control(
        "Values",
        (GRID, RANDOM),
        default=GRID,
        required=True,
        key="how",
        bind="query-params",
        help="Grid: every combination of the listed values\\. Random: the given number of draws, each field sampled independently\\.",
    )
    chosen = picker.multiselect(
        "Fields to sweep",
        list(fields),
        key="field",
        format_func=lambda path: fields[path].label,
        bind="query-params",
        placeholder="Learning rate, group size, …: any field",
        wrap=True,
    )
    swept = {path: fields[path] for path in chosen}
    title = f"{', '.join(short_names(chosen).values())} on {base.name.partition(' · ')[0]}"
    if not swept:
        return Plan((), NOUN, title, ("Choose a field to sweep",))
    points, problems = _grid(swept, base.config) if how == GRID else _random(swept, base.config)
    variants = () if problems else variants_of(base.config, points)
    return Plan(variants, NOUN, title, problems, VIEW)


def _grid(swept: Mapping[str, Sweepable], base: Config) -> tuple[list[dict[str, Json]], list[str]]:
    """A list of values for each field; the points, and what cannot be read."""
    values, problems = _rows(swept, base, _show_values)
    if problems:
        return [], problems
    if size(values) > MOST_RUNS:
        return [], [f"{count(size(values))} combinations are too many for one sweep; at most {MOST_RUNS}"]
    return grid(values), []


def _random(swept: Mapping[str, Sweepable], base: Config) -> tuple[list[dict[str, Json]], list[str]]:
    """A range or a list for each field, how many draws, and their seed; the points, and what cannot be drawn."""
    sources, problems = _rows(swept, base, lambda one, base: (_show_range if one.numeric else _show_values)(one, base))
    many, seed, _ = st.columns([1, 1, 2])
    draws = whole_number("Draws", 1, MOST_RUNS, 12, place=many, key="draws")
    drawn_with = whole_number(
        "Seed of the draws",
        0,
        2**31 - 1,
        0,
        place=seed,
        key="draw-seed",
        help="The same seed draws the same values again; if you ask for more draws, the first ones stay the same\\. The runs' own seeds stand to the right\\.",
    )
    if problems:
        return [], problems
    points = draw(sources, draws, drawn_with)
    if len(points) < draws:
        st.caption(f"There are only {len(points)} different combinations to draw.")
    return points, []


def _rows(
    swept: Mapping[str, Sweepable], base: Config, show: Callable[[Sweepable, Config], T]
) -> tuple[dict[str, T], list[str]]:
    """Each field with what it may be; what was read of those that can be read, and what is wrong with the others."""
    found: dict[str, T] = {}
    problems = []
    for path, one in swept.items():
        with st.container(border=True, key=f"swept-{path.replace('.', '-')}"):
            about, values = st.columns([2, 3], vertical_alignment="center")
            about.markdown(
                f"**{plain(one.label)}**  \n:small[:gray[{plain(f'{path} · now {cell(value_at(one, base))}')}]]",
                help=plain(one.field.help) or None,
            )
            with values:
                try:
                    found[path] = show(one, base)
                except (Unreadable, EmptyRange) as reason:
                    problems.append(f"{one.label}: {reason}")
                    st.markdown(f":small[:red[{plain(str(reason))}]]")
    return found, problems


def _show_values(one: Sweepable, base: Config) -> list[Json]:
    """The values of a field, as a list of words or as text. Raises Unreadable."""
    begin = suggested(one, base)
    if one.words is not None:
        values: list[Json] = st.multiselect(
            "Values",
            one.words,
            default=begin,
            format_func=_word,
            key=one.path,
            bind="query-params",
            label_visibility="collapsed",
            wrap=True,
        )
    elif one.numeric:
        typed = st.text_input(
            "Values",
            write_values(one.field, begin),
            key=one.path,
            bind="query-params",
            placeholder="numbers, such as 1e-5, 3e-5, 1e-4",
            label_visibility="collapsed",
        )
        values = read_values(one.field, typed)
    else:
        text, label = write_values(one.field, begin), "Values, one a line"
        values = read_values(one.field, st.text_area(label, text, key=one.path, bind="query-params", height=90))
    if not values:
        raise Unreadable("needs at least one value")
    return values


def _show_range(one: Sweepable, base: Config) -> Range:
    """Two ends and a scale. Raises Unreadable and EmptyRange."""
    whole = isinstance(one.field, Whole)
    low, high, scale = st.columns([1, 1, 1.2], vertical_alignment="bottom")
    begin, end = bounds(one, base)
    first = low.text_input("From", begin, key=f"{one.path}:from", bind="query-params")
    last = high.text_input("To", end, key=f"{one.path}:to", bind="query-params")
    how = scale.segmented_control(
        "Scale",
        (LINEAR, LOG),
        default=LINEAR if whole or begin == "0" else LOG,
        required=True,
        key=f"{one.path}:scale",
        bind="query-params",
        help="log draws as often between 1e-5 and 1e-4 as between 1e-4 and 1e-3\\.",
    )
    return Range(read_bound(one.field, first), read_bound(one.field, last), log=how == LOG, whole=whole)


def _word(value: Json) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return NONE if value is None else in_words(str(value))
