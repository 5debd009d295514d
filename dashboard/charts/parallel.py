"""Parallel coordinates: each run is a line through the settings in which the runs differ, to its result."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import altair as alt
import pandas as pd

from dashboard.charts.figure import Figure, Spec, canvas, specification, tips
from dashboard.charts.palette import NEUTRAL, SIZES
from dashboard.format import MISSING, scientific

Value = float | str | None
BRUSHED = "brushed"  # the selection that dragging along an axis makes
HEIGHT = 340  # pixels
COLUMNS = ("kind", "place", "level", "to_level", "run", "label", "text", "outcome", "shade", "chosen")
_MANY = 9  # a number with more values than this has round marks on its axis and not each value
_APART = 0.06  # of the height between two marks, to be read
_WIDE = 10.0  # positive numbers that reach further than this factor lie on a log scale


@dataclass(frozen=True)
class Axis:
    """One upright axis: each run's value, and the range along it, from 0 to 1, that a person brushed."""

    name: str
    values: Mapping[int, Value]
    brushed: tuple[float, float] | None = None

    @property
    def numeric(self) -> bool:
        """Whether all known values are numbers."""
        known = [value for value in self.values.values() if value is not None]
        return bool(known) and all(isinstance(value, float) for value in known)


def levels(axis: Axis) -> dict[int, float]:
    """How high each run lies on the axis, from 0 to 1; runs without a value are left out."""
    level = _levelled(axis)
    return {run: level(value) for run, value in axis.values.items() if value is not None}


def within(axes: Sequence[Axis]) -> set[int]:
    """The runs that lie in every brushed range."""
    runs = {run for axis in axes for run in axis.values}
    for axis in axes:
        if axis.brushed is not None:
            low, high = axis.brushed
            runs &= {run for run, level in levels(axis).items() if low <= level <= high}
    return runs


def parallel_figure(axes: Sequence[Axis], labels: Mapping[int, str], *, better: str | None) -> Figure:
    """The runs named in `labels`; the last axis is their outcome and colours them, the deeper the better: no colour of a group or run.

    If less is better (`better` is "lower"), the axis stays upright and the shades change sides. A run without a result
    is grey and ends before the last axis; a run outside a brushed range fades.
    """
    chosen = within(axes)
    heights = [levels(axis) for axis in axes]
    shades = heights[-1]
    rows = [row for place, axis in enumerate(axes) for row in _marks(place, axis)]
    for run, label in labels.items():
        shade = shades.get(run)
        shade = 1 - shade if shade is not None and better == "lower" else shade
        outcome = axes[-1].values.get(run)
        for place, axis in enumerate(axes):
            level = heights[place].get(run)
            text = shown(axis.values.get(run))
            rows.append(("run", place, level, None, run, label, text, shown(outcome), shade, run in chosen))
    return Figure(_spec(len(axes) - 1, axes[-1].name), pd.DataFrame(rows, columns=list(COLUMNS)))


def _marks(place: int, axis: Axis) -> list[tuple[object, ...]]:
    """The axis with its name and its numbers, and what was brushed of it."""
    rows: list[tuple[object, ...]] = [
        ("axis", place, 0.0, 1.0, None, "", "", "", None, True),
        ("name", place, 1.0, None, None, "", axis.name, "", None, True),
    ]
    level = _levelled(axis)
    for value in _ticks(axis, level):
        rows.append(("tick", place, level(value), None, None, "", shown(value), "", None, True))
    if axis.brushed is not None:
        rows.append(("brush", place, *axis.brushed, None, "", "", "", None, True))
    return rows


def _ticks(axis: Axis, level: Callable[[Value], float]) -> Sequence[Value]:
    """Each value, or of many numbers some round ones."""
    if not axis.numeric:
        return _names(axis)
    numbers = _numbers(axis)
    if len(numbers) <= _MANY and all(level(after) - level(before) > _APART for before, after in pairwise(numbers)):
        return numbers
    low, high = numbers[0], numbers[-1]
    if _logarithmic(numbers):
        inner = [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    else:
        inner = [low + (high - low) * part / 4 for part in range(1, 4)]
    return [low, *(one for one in inner if _APART < level(one) < 1 - _APART), high]


def _levelled(axis: Axis) -> Callable[[Value], float]:
    """How high a value lies on the axis: names evenly spaced, numbers by size, or by their logarithm where they reach far."""
    if not axis.numeric:
        names = _names(axis)
        return lambda value: names.index(str(value)) / (len(names) - 1) if len(names) > 1 else 0.5
    numbers = _numbers(axis)
    stretch = math.log if _logarithmic(numbers) else float
    low, high = stretch(numbers[0]), stretch(numbers[-1])
    return lambda value: (stretch(float(value or 0.0)) - low) / (high - low) if high > low else 0.5


def _names(axis: Axis) -> list[str]:
    return sorted({str(value) for value in axis.values.values() if value is not None})


def _numbers(axis: Axis) -> list[float]:
    return sorted({float(value) for value in axis.values.values() if value is not None})


def _logarithmic(numbers: Sequence[float]) -> bool:
    return numbers[0] > 0 and numbers[-1] / numbers[0] >= _WIDE


def shown(value: Value) -> str:
    """A setting as people write it, without zeros that say nothing: 8, 0.95, 1.81e-4; or that it is missing."""
    if value is None:
        return MISSING
    if isinstance(value, str):
        return value
    if value.is_integer() and abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e3 else scientific(value)


@lru_cache(maxsize=64)
def _spec(last: int, outcome: str) -> Spec:
    x = alt.X("place:Q", axis=None, scale=alt.Scale(domain=[-0.35, last + 0.35], nice=False, zero=False))
    y = alt.Y("level:Q", title=None, axis=None, scale=alt.Scale(domain=[-0.06, 1.16], nice=False, zero=False))
    base = canvas().encode(x=x, y=y)
    scale = alt.Scale(domain=[0, 1], range=list(SIZES), interpolate="rgb")
    # by a condition: a scale leaves out points without a value
    shade = alt.when("isValid(datum.shade)").then(alt.Color("shade:Q", scale=scale, legend=None))
    runs = base.transform_filter("datum.kind === 'run'").encode(
        color=shade.otherwise(alt.value(NEUTRAL)), detail="run:N"
    )
    hover = alt.selection_point(
        name="hover", nearest=True, on="pointermove", clear="pointerout", fields=["run"], empty=False
    )
    brush = alt.selection_interval(name=BRUSHED, encodings=["x", "y"], translate=False, zoom=False)
    axes = base.transform_filter("datum.kind === 'axis'").mark_rule(color=NEUTRAL, opacity=0.7).encode(y2="to_level:Q")
    brushes = base.transform_filter("datum.kind === 'brush'").encode(y2="to_level:Q")
    brushes = brushes.mark_rule(color=NEUTRAL, strokeWidth=14, opacity=0.35)
    faded = runs.transform_filter("!datum.chosen").mark_line(strokeWidth=1, opacity=0.13)
    lines = runs.transform_filter("datum.chosen").mark_line(strokeWidth=1.8, opacity=0.75)
    touched = runs.transform_filter("isValid(hover.run) && datum.run === hover.run[0]").mark_line(strokeWidth=4)
    points = runs.mark_point(filled=True, size=45).encode(
        opacity=alt.when("datum.chosen").then(alt.value(0.9)).otherwise(alt.value(0.13)),
        tooltip=tips(("label:N", "run"), ("text:N", "here"), ("outcome:N", outcome)),
    )
    layers = [brushes, axes.add_params(brush), faded, lines, touched, points.add_params(hover), *_words(base, last)]
    padding = {"left": 0, "right": 0, "top": 4, "bottom": 4}
    return specification(alt.layer(*layers).properties(height=HEIGHT, padding=padding))


def _words(base: alt.Chart, last: int) -> list[alt.Chart]:
    """The axes' names above, their values to the left, above the lines that arrive there, those of the outcome to the right."""
    titles = base.transform_filter("datum.kind === 'name'").mark_text(
        dy=-25, fontSize=13, fontWeight=600, color=NEUTRAL
    )
    ticks = base.transform_filter("datum.kind === 'tick'").encode(text="text:N")
    first = ticks.transform_filter("datum.place === 0").mark_text(align="right", dx=-9, color=NEUTRAL, fontSize=12)
    inner = ticks.transform_filter(f"datum.place > 0 && datum.place < {last}").mark_text(
        align="right", dx=-6, dy=-9, color=NEUTRAL, fontSize=12
    )
    right = ticks.transform_filter(f"datum.place === {last}").mark_text(align="left", dx=9, color=NEUTRAL, fontSize=12)
    return [titles.encode(text="text:N"), first, inner, right]
