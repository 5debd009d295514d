"""The what-if's pictures: each completion before and after, the step's advantages as a distribution, a completion's tokens."""

from collections.abc import Sequence
from functools import lru_cache
from math import isclose

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dashboard.algorithm.recomputation import Values
from dashboard.charts.figure import Figure, Spec, canvas, specification, tips
from dashboard.charts.group import advantage_scale
from dashboard.charts.palette import NEUTRAL, UNSCORED, advantage_colour
from dashboard.format import signed
from dashboard.what_if.changes import Traced

MOST_LABELS = 16  # completions that still have room for their numbers
SIDE = 12  # bins on each side of the one around 0
_CHANGE = ["completion", "before", "after", "colour", "above", "label"]
_SHARES = ["low", "high", "advantage", "before", "after", "colour"]
_TOKENS = ["position", "ratio", "which", "surrogate", "clipped"]


def change_figure(before: Sequence[float | None], after: Sequence[float]) -> Figure:
    """Each completion's stored advantage as a ring, the recomputed one as a dot, and a line from the one to the other."""
    scale, roomy = advantage_scale([*before, *after]), len(after) <= MOST_LABELS
    rows = [
        (place + 1, old, new, advantage_colour(new, scale), _is_above(old, new), signed(new) if roomy else "")
        for place, (old, new) in enumerate(zip(before, after, strict=True))
    ]
    return Figure(_change_spec(len(after)), pd.DataFrame(rows, columns=_CHANGE))


def _is_above(before: float | None, after: float) -> bool:
    """Where its number lies: away from where the dot came from, or away from 0."""
    return after >= 0 if before is None or isclose(before, after, abs_tol=1e-9) else after > before


@lru_cache(maxsize=16)
def _change_spec(count: int) -> Spec:
    ticks = alt.Axis(format="d", tickCount=min(count, 16), grid=False, labelFlush=False)
    x = alt.X("completion:Q", title="completion", axis=ticks, scale=alt.Scale(domain=[0.5, count + 0.5], nice=False))
    of_value = alt.Axis(tickCount=5, format=".6~g", minExtent=34)
    reach = alt.Scale(zero=True, nice=False, padding=20)
    tooltip = tips(("completion:Q", "completion"), ("before:Q", "stored", "+.6~g"), ("after:Q", "what if", "+.6~g"))
    base = canvas().encode(x=x, tooltip=tooltip)
    old = alt.Y("before:Q", title="advantage", axis=of_value, scale=reach)
    new = alt.Y("after:Q", title="advantage", axis=of_value, scale=reach)
    colour = alt.Color("colour:N", scale=None)
    zero = canvas().transform_aggregate(rows="count()").mark_rule(color=NEUTRAL).encode(y=alt.datum(0))
    known = base.transform_filter("isValid(datum.before)")
    lines = known.mark_rule(strokeWidth=2.5, opacity=0.7).encode(y=old, y2="after:Q", color=colour)
    rings = known.mark_point(size=90, color=NEUTRAL, strokeWidth=2, fill="transparent").encode(y=old)
    dots = base.mark_circle(size=110, opacity=1).encode(y=new, color=colour)
    numbers = [
        base.transform_filter(f"datum.above == {above}")
        .mark_text(dy=offset, fontSize=12, fontWeight=600)
        .encode(y=new, text="label:N", color=colour)
        for above, offset in (("true", -13), ("false", 14))
    ]
    return specification(alt.layer(zero, lines, rings, dots, *numbers).properties(height=230))


def distribution_figure(before: Values, after: Values) -> Figure:
    """How many completions have which advantage: recomputed ones as bars, stored ones as their outline."""
    known = ~np.isnan(before)
    reach = float(np.abs([before[known], after[known]]).max(initial=0.0)) or 1.0
    edges = np.linspace(-1.0, 1.0, 2 * SIDE + 2) * reach
    counts = [np.histogram(values[known], edges)[0].tolist() for values in (before, after)]
    rows = [
        (low, high, middle, old, new, advantage_colour(0.0 if place == SIDE else middle, reach))
        for place, (low, high, middle, old, new) in enumerate(
            zip(edges[:-1], edges[1:], edges[:-1] / 2 + edges[1:] / 2, *counts, strict=True)
        )
    ]
    return Figure(_distribution_spec(), pd.DataFrame(rows, columns=_SHARES))


@lru_cache(maxsize=1)
def _distribution_spec() -> Spec:
    plain = alt.Axis(grid=False, format=".6~g", tickCount=9)
    x = alt.X("low:Q", title="advantage", axis=plain, scale=alt.Scale(zero=False, nice=False))
    count = alt.Axis(tickCount=5, format="d", tickMinStep=1, minExtent=34)
    counts = ("before:Q", "stored"), ("after:Q", "what if")
    tooltip = tips(("low:Q", "from", "+.3~g"), ("high:Q", "to", "+.3~g"), *counts)
    base = canvas().encode(x=x, x2="high:Q", y2=alt.datum(0), tooltip=tooltip)
    after = base.mark_bar(binSpacing=1).encode(
        y=alt.Y("after:Q", title="completions", axis=count), color=alt.Color("colour:N", scale=None)
    )
    before = base.mark_bar(binSpacing=1, fill="transparent", stroke=NEUTRAL, strokeWidth=1.5).encode(y="before:Q")
    return specification(alt.layer(after, before).properties(height=210))


def tokens_figure(before: Traced, after: Traced) -> Figure:
    """Each token's surrogate along the completion: as it was, and under the chosen settings; clipped tokens are crossed."""
    frames = []
    for which, tokens in (("stored", before), ("what if", after)):
        clipped: NDArray[np.str_] = np.where(tokens.low, "below", np.where(tokens.high, "above", ""))
        columns = (np.arange(1, len(tokens.ratio) + 1), tokens.ratio, which, tokens.surrogate, clipped)
        frames.append(pd.DataFrame(dict(zip(_TOKENS, columns, strict=True))))
    return Figure(_tokens_spec(), pd.concat(frames, ignore_index=True))


@lru_cache(maxsize=1)
def _tokens_spec() -> Spec:
    x = alt.X("position:Q", title="token", axis=alt.Axis(grid=False, format="d"), scale=alt.Scale(nice=False))
    axis = alt.Axis(tickCount=5, format=".6~g", minExtent=34)
    y = alt.Y("surrogate:Q", title="surrogate", axis=axis, scale=alt.Scale(zero=False, padding=8))
    colours = alt.Scale(domain=["stored", "what if"], range=[NEUTRAL, "#3a86d6"])
    look = alt.Color("which:N", scale=colours, legend=alt.Legend(orient="top", title=None, symbolType="stroke"))
    numbers = ("ratio:Q", "ratio", ".4~f"), ("surrogate:Q", "surrogate", "+.4~g")
    tooltip = tips(("position:Q", "token"), ("which:N", "which"), *numbers, ("clipped:N", "clipped from"))
    base = canvas().encode(x=x, y=y, tooltip=tooltip)
    lines = base.mark_line(strokeWidth=1.5, interpolate="step").encode(color=look)
    dots = base.mark_circle(size=26, opacity=0.8).encode(color=look)
    crosses = base.transform_filter("datum.clipped != ''").mark_point(
        shape="cross", angle=45, size=70, color=UNSCORED, strokeWidth=2, opacity=1
    )
    return specification(alt.layer(lines, dots, crosses).properties(height=200))
