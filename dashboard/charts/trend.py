"""How a property of completions, and what the reward pays for it, went over a window of steps."""

from collections.abc import Sequence
from functools import lru_cache

import altair as alt
import pandas as pd

from backend.contract.properties import TrendPoint
from dashboard.charts.figure import Figure, Spec, canvas, specification, tips
from dashboard.charts.lines import NUMBER, PADDING, SHARE, value_axis, x_axis
from dashboard.charts.palette import INK

HEIGHT = 150  # pixels


def effect_figure(points: Sequence[TrendPoint]) -> Figure:
    """The effect in each part of the window, with its interval and a line at 0; a part of which too little is known has none."""
    known = [point for point in points if point.effect is not None]
    return Figure(_spec("effect", "~g", interval=True), _rows(known))


def mean_figure(points: Sequence[TrendPoint], *, share: bool) -> Figure:
    """The mean of the property in each part, or the share of completions that have it."""
    return Figure(_spec("mean", SHARE if share else "~g", interval=False), _rows(points))


def _rows(points: Sequence[TrendPoint]) -> pd.DataFrame:
    rows = [
        {
            **point.model_dump(),
            "x": (point.from_step + point.to_step) / 2,
            "steps": f"{point.from_step:,} to {point.to_step:,}",
        }
        for point in points
    ]
    return pd.DataFrame(rows, columns=["x", "steps", "mean", "effect", "low", "high"])


@lru_cache(maxsize=8)
def _spec(field: str, axis: str, *, interval: bool) -> Spec:
    form = ".1%" if axis == SHARE else NUMBER
    ends = [("low:Q", "from", NUMBER), ("high:Q", "to", NUMBER)] if interval else []
    base = canvas().encode(x=alt.X("x:Q", title=None, scale=alt.Scale(nice=False, zero=False), axis=x_axis(whole=True)))
    y = alt.Y(f"{field}:Q", title=None, scale=alt.Scale(zero=interval or axis == SHARE), axis=value_axis(axis))
    line = base.mark_line(color=INK, strokeWidth=2, aria=False).encode(y=y)
    dots = base.mark_point(filled=True, size=45, color=INK, aria=False).encode(
        y=y, tooltip=tips(("steps:N", "steps"), (f"{field}:Q", field, form), *ends)
    )
    layers = [line, dots]
    if interval:
        band = base.mark_area(color=INK, opacity=0.18, aria=False).encode(y="low:Q", y2="high:Q")
        zero = canvas().transform_aggregate(rows="count()").mark_rule(strokeDash=[4, 3], opacity=0.7, color="gray")
        layers = [band, zero.encode(y=alt.datum(0)), *layers]
    return specification(alt.layer(*layers).properties(height=HEIGHT, padding=PADDING))
