"""The Playground's pictures: advantages as bars with their signed numbers, and functions with a point that moves.

Whatever a control changes is in the data, so that nothing is rebuilt and nothing jumps.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dashboard.charts.figure import Figure, Spec, canvas, specification, tips
from dashboard.charts.group import advantage_scale
from dashboard.charts.lines import PADDING
from dashboard.charts.palette import NEUTRAL, advantage_colour
from dashboard.format import MISSING, signed

MOST_LABELS = 16  # bars that still have room for their numbers
_BAR_COLUMNS = ["place", "completion", "reward", "advantage", "above", "colour", "label"]


def bars_figure(
    rewards: Sequence[float | None], advantages: Sequence[float], noun: str, *, height: int = 210
) -> Figure:
    """A bar for each completion (or token): its advantage, signed and in the colours of advantages, over its reward."""
    scale = advantage_scale(advantages)
    roomy = len(rewards) <= MOST_LABELS
    rows = []
    for index, (reward, advantage) in enumerate(zip(rewards, advantages, strict=True)):
        below = MISSING if reward is None else f"{reward:.4g}".replace("-", "−")
        label = "unscored" if reward is None else signed(advantage)
        rows.append(
            {
                "place": f"{index + 1}|{below}" if roomy else f"{index + 1}|",
                "completion": index + 1,
                "reward": below,
                "advantage": advantage,
                "above": advantage >= 0,
                "colour": advantage_colour(None if reward is None else advantage, scale),
                "label": label if roomy else "",
            }
        )
    return Figure(
        _bars_spec(f"{noun}, and its reward below" if roomy else noun, noun, height),
        pd.DataFrame(rows, columns=_BAR_COLUMNS),
    )


@lru_cache(maxsize=8)
def _bars_spec(x_title: str, noun: str, height: int) -> Spec:
    labels = alt.Axis(
        labelExpr="split(datum.label, '|')", labelAngle=0, labelOverlap=True, ticks=False, domain=False, labelPadding=6
    )
    x = alt.X("place:N", sort=None, title=x_title, axis=labels)
    reach = alt.Scale(zero=True, nice=False, padding=22)
    y = alt.Y("advantage:Q", title="advantage", scale=reach, axis=alt.Axis(tickCount=5, format=".6~g", minExtent=34))
    base = canvas().encode(x=x, y=y)
    tooltip = tips(("completion:Q", noun), ("reward:N", "reward"), ("advantage:Q", "advantage", "+.6~g"))
    bars = base.mark_bar(cornerRadius=2, width=alt.RelativeBandSize(band=0.62)).encode(
        color=alt.Color("colour:N", scale=None), tooltip=tooltip
    )
    zero = canvas().transform_aggregate(rows="count()").mark_rule(color=NEUTRAL).encode(y=alt.datum(0))
    numbers = [
        base.transform_filter(f"datum.above == {above}")
        .mark_text(dy=offset, fontSize=12, fontWeight=600)
        .encode(text="label:N", color=alt.Color("colour:N", scale=None))
        for above, offset in (("true", -9), ("false", 10))
    ]
    return specification(alt.layer(bars, zero, *numbers).properties(height=height))


class Curve(NamedTuple):
    """A function with its value at the point. The strong one of several is drawn thicker."""

    label: str
    colour: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    at: float
    strong: bool = True
    dashed: bool = False


_CURVE_COLUMNS = ["kind", "label", "colour", "x", "y", "x2", "strong", "dashed", "text", "where"]


def curves_figure(
    curves: Sequence[Curve],
    at: float,
    *,
    x_title: str,
    y_title: str,
    equal: float,
    band: tuple[float, float] | None = None,
) -> Figure:
    """Functions over one x with the point `at` marked on each; `equal` is where both policies agree, `band` the free range."""
    frames = [pd.DataFrame({**_look(c), "kind": "line", "x": c.x, "y": c.y, "dashed": c.dashed}) for c in curves]
    low, high = float(curves[0].x[0]), float(curves[0].x[-1])
    on_left = at > low + 0.6 * (high - low)
    marks: list[dict[str, object]] = [{"kind": "at", "x": at}, {"kind": "equal", "x": equal}]
    lines = np.concatenate([c.y for c in curves])
    reach = float(lines.max() - lines.min())
    sides = _free_sides([c for c in curves if c.strong], at, on_left, 0.2 * reach)
    for c, end_y in zip(curves, _apart([float(c.y[-1]) for c in curves], 0.085 * reach), strict=True):
        marks.append({"kind": "point", "x": at, "y": c.at, **_look(c)})
        marks.append({"kind": "end", "x": c.x[-1], "y": end_y, **_look(c)})
        if c.strong:
            where = f"{'left' if on_left else 'right'} {sides[c.label]}"
            marks.append({"kind": "number", "x": at, "y": c.at, "text": signed(c.at), "where": where, **_look(c)})
    if band is not None:
        marks.append({"kind": "band", "x": max(band[0], 0.0), "x2": min(band[1], high)})
    data = pd.concat([*frames, pd.DataFrame(marks)], ignore_index=True).reindex(columns=_CURVE_COLUMNS)
    return Figure(_curves_spec(x_title, y_title), data)


def _look(curve: Curve) -> dict[str, object]:
    return {"label": curve.label, "colour": curve.colour, "strong": curve.strong}


def _free_sides(curves: Sequence[Curve], at: float, on_left: bool, close: float) -> dict[str, str]:
    """Above or below: where beside its point a curve's number lies neither on the curve nor on a close curve's number."""
    sides = {c.label: "below" if (_slope(c, at) < 0) == on_left and _slope(c, at) else "above" for c in curves}
    for lower, upper in pairwise(sorted(curves, key=lambda c: c.at)):
        if upper.at - lower.at < close:
            sides |= {lower.label: "below", upper.label: "above"}
    return sides


def _slope(curve: Curve, at: float) -> float:
    place = int(np.clip(np.searchsorted(curve.x, at), 1, len(curve.x) - 1))
    return float(curve.y[place] - curve.y[place - 1])


def _apart(values: Sequence[float], gap: float) -> list[float]:
    """The values moved apart where they lie closer than the gap, so that what is written there can be read."""
    moved = list(values)
    order = sorted(range(len(values)), key=values.__getitem__)
    for below, above in pairwise(order):
        lacking = gap - (moved[above] - moved[below])
        if lacking > 0:
            moved[below] -= lacking / 2
            moved[above] += lacking / 2
    return moved


@lru_cache(maxsize=8)
def _curves_spec(x_title: str, y_title: str) -> Spec:
    flat = alt.Axis(grid=False, tickCount=6, format=".6~g")
    x = alt.X("x:Q", title=x_title, scale=alt.Scale(zero=True, nice=False), axis=flat)
    ticks = alt.Axis(tickCount=5, format=".6~g", minExtent=34)
    y = alt.Y("y:Q", title=y_title, scale=alt.Scale(zero=True, nice=True, padding=10), axis=ticks)
    drawn = canvas().encode(x=x, y=y, color=alt.Color("colour:N", scale=None))
    tooltip = tips(("label:N", "line"), ("x:Q", x_title, ".4~g"), ("y:Q", y_title, "+.4~g"))
    lines, numbers = _only(drawn, "line").encode(detail="label:N", tooltip=tooltip), _only(drawn, "number")
    strokes = [
        lines.transform_filter(f"datum.strong == {strong} && datum.dashed == {dashed}").mark_line(
            strokeWidth=width, strokeDash=dash, opacity=opacity
        )
        for strong, width, opacity in (("true", 2.6, 1.0), ("false", 1.4, 0.75))
        for dashed, dash in (("false", [1, 0]), ("true", [5, 4]))
    ]
    sides: list[tuple[str, Literal["left", "right"], int]] = [("left", "right", -9), ("right", "left", 9)]
    texts = [  # at the corner beside the point that is free
        numbers.encode(text="text:N")
        .transform_filter(f"datum.where == '{side} {height}'")
        .mark_text(align=align, dx=dx, dy=dy, fontSize=12, fontWeight=600)
        for side, align, dx in sides
        for height, dy in (("above", -10), ("below", 12))
    ]
    layers = [
        _only(canvas(), "band").mark_rect(color=NEUTRAL, opacity=0.14).encode(x=x, x2="x2:Q"),
        canvas().transform_aggregate(rows="count()").mark_rule(color=NEUTRAL, opacity=0.6).encode(y=alt.datum(0)),
        _only(canvas(), "equal").mark_rule(color=NEUTRAL, strokeDash=[2, 3]).encode(x=x),
        _only(canvas(), "at").mark_rule(color=NEUTRAL, strokeWidth=1.5).encode(x=x),
        *strokes,
        _only(drawn, "point").mark_circle(size=130, opacity=1, stroke="white", strokeWidth=1.5).encode(tooltip=tooltip),
        *texts,
        _only(drawn, "end").mark_text(align="left", dx=5, fontSize=12).encode(text="label:N"),
    ]
    return specification(alt.layer(*layers).properties(height=230, padding=PADDING))


def _only(chart: alt.Chart, kind: str) -> alt.Chart:
    return chart.transform_filter(f"datum.kind == '{kind}'")
