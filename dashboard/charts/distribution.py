"""How rewards or advantages were distributed at each step: a heat map whose vertical slices are histograms."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import altair as alt
import pandas as pd

from backend.contract.inspection import Distribution
from dashboard.charts.figure import Figure, Spec, canvas, specification, tips
from dashboard.charts.lines import PADDING, value_axis, x_axis
from dashboard.charts.palette import DISCOURAGED, INK, NEUTRAL, REINFORCED, UNSCORED

HEIGHT = 190  # pixels
COLUMNS = ("step", "to_step", "low", "high", "count", "share", "strength", "colour", "what")
_ROWS = 30  # a cell is as strong as the share that would lie in one of this many equal parts of the scale
_STRIP = 0.07  # of the height, below the scale: completions without a value


class Scale(NamedTuple):
    """What the axes show; `missing` makes room for what has no value. Figures on one scale can be compared by eye."""

    low: float
    high: float
    last_step: int
    missing: bool


def common_scale(found: Sequence[Distribution]) -> Scale:
    """The scale on which all of them fit."""
    edges = [edge for one in found for edge in one.edges] or [0.0, 1.0]
    low, high = min(edges), max(edges)
    return Scale(
        low,
        high if high > low else low + 1.0,
        max((_ends(one.steps)[-1] for one in found if one.steps), default=1),
        any(missing for one in found for missing in one.missing),
    )


def distribution_figure(found: Distribution, scale: Scale | None = None) -> Figure:
    """The heat map; by itself it has a scale of its own.

    Advantages above 0 are blue and those below orange, as everywhere; the fuller the colour, the more completions of the
    step. Completions without a value are red, in a strip of their own below.
    """
    scale = scale or common_scale([found])
    rows = [row for place in range(len(found.steps)) for row in _slice(found, place, scale)]
    return Figure(_spec(found.value, scale), pd.DataFrame(rows, columns=list(COLUMNS)))


def _slice(found: Distribution, place: int, scale: Scale) -> list[tuple[float | str, ...]]:
    """One step's cells; empty ones are left out."""
    step, end = found.steps[place], _ends(found.steps)[place]
    total = sum(found.counts[place]) + found.missing[place]
    rows: list[tuple[float | str, ...]] = []
    for count, low, high in zip(found.counts[place], found.edges, found.edges[1:], strict=False):
        if count:
            share = count / total
            density = share * (scale.high - scale.low) / ((high - low) * _ROWS) if high > low else share
            sign = NEUTRAL if low < 0 < high else REINFORCED if low >= 0 else DISCOURAGED
            colour = sign if found.value == "advantage" else INK
            rows.append((step, end, low, high, count, share, min(1.0, density) ** 0.5, colour, found.value))
    if found.missing[place]:
        share = found.missing[place] / total
        span = scale.high - scale.low
        low, high = scale.low - _STRIP * span, scale.low - 0.35 * _STRIP * span
        rows.append((step, end, low, high, found.missing[place], share, share**0.5, UNSCORED, f"no {found.value}"))
    return rows


def _ends(steps: Sequence[int]) -> list[int]:
    """Where each step's slice ends: at the next one; the last is as wide as the one before."""
    width = steps[-1] - steps[-2] if len(steps) > 1 else 1
    return [*steps[1:], steps[-1] + width]


@lru_cache(maxsize=64)
def _spec(value: str, scale: Scale) -> Spec:
    low = scale.low - (_STRIP * (scale.high - scale.low) if scale.missing else 0.0)
    x = alt.X("step:Q", title=None, scale=alt.Scale(domain=[0, scale.last_step], nice=False), axis=x_axis())
    y = alt.Y("low:Q", title=None, scale=alt.Scale(domain=[low, scale.high], nice=False), axis=value_axis("~g"))
    edges = ("low:Q", f"{value} from", ".3~g"), ("high:Q", "to", ".3~g")
    counts = ("count:Q", "completions", ","), ("share:Q", "share of the step", ".1%")
    cells = canvas().encode(
        x=x,
        x2="to_step:Q",
        y=y,
        y2="high:Q",
        color=alt.Color("colour:N", scale=None),
        opacity=alt.Opacity("strength:Q", scale=None),
        tooltip=tips(("step:Q", "step", ","), *edges, *counts, ("what:N", "what")),
    )
    return specification(cells.mark_rect(aria=False).properties(height=HEIGHT, padding=PADDING))
