"""Metrics as lines: a smooth line over a faint raw one and its extremes, a cursor, and steps that can be clicked."""

from functools import lru_cache
from typing import Literal, NamedTuple

import altair as alt
import pandas as pd

from dashboard.charts.figure import PICKED, ZOOMED, Figure, Spec, canvas, colour, legend_of, specification, tips
from dashboard.charts.series import touchable

SHARE = "~%"  # the axis format of shares
TOUCHED = 120  # points of a chart that the pointer finds, about one for four pixels
PADDING = {"left": 0, "right": 8, "top": 4, "bottom": 0}
# "128 to 135 (8 values)", for the browser to put together where the pointer is
SPAN = "(datum.start < datum.step ? format(datum.start, ',') + ' to ' : '') + format(datum.step, ',')"
STEPS = (
    f"{SPAN} + ' (' + format(datum.finite, ',') + (datum.finite === 1 ? ' value' : ' values')"
    " + (datum.missing > 0 ? ', ' + format(datum.missing, ',') + ' not finite' : '') + ')'"
)
NUMBER = ".4~g"  # of values in tooltips
SMOOTHED, METRIC = ("smooth:Q", "smoothed", NUMBER), ("metric:N", "metric")
# Where a line lies exactly on another both are seen: those after the first have gaps, and smaller dots.
DASHES, DOTS, DOT = ([1, 0], [6, 4], [2, 3]), (90, 40, 12), 55
AXIS_WIDTH = 44  # every chart keeps this for its numbers, so that charts above each other share their x axis


class Look(NamedTuple):
    """The parts of a chart that stay the same while its data grows. `colours` pairs labels with colours; domains may be open."""

    colours: tuple[tuple[str, str], ...]
    axis: str = "~g"
    x_title: str = "step"
    x_axis: str = "~s"
    x_domain: tuple[float, float] | None = None
    from_zero: bool = False
    log: bool = False
    dots: bool = False
    legend: bool = True
    pickable: bool = False
    picked: str = "step"  # the column of whole numbers whose value a click hands over
    zoomable: bool = False  # by dragging along the x axis
    mark: int | None = None  # a step to mark with a line
    height: int = 190
    gaps: bool = True  # whether a value may be missing
    thinned: bool = False  # each point the mean of some steps, with their extremes


def line_figure(look: Look, table: pd.DataFrame) -> Figure:
    """Lines over columns x, value, smooth, label, metric, step, alone; of thinned series also those of their stretches."""
    look = look._replace(gaps=has_gaps(table), thinned="low" in table)
    return Figure(line_spec(look), touchable(table, TOUCHED))


def stacked_figure(look: Look, table: pd.DataFrame) -> Figure:
    """Areas on top of each other, over the same columns, `start` and `order`."""
    return Figure(stacked_spec(look._replace(thinned="start" in table)), touchable(table, TOUCHED))


@lru_cache(maxsize=512)
def line_spec(look: Look) -> Spec:
    """Lines over columns x, value, smooth, label, metric, step, touch, and low and high of what is thinned."""
    base = _base(look)
    smooth = base.encode(y=_y("smooth", look))
    said = alt.value(look.colours[0][0]) if len(look.colours) == 1 else alt.Description("label:N")
    line = smooth.mark_line(strokeWidth=2, invalid=broken(gaps=look.gaps)).encode(description=said)
    found = found_by_pointer(smooth, STEPS if look.thinned else None).mark_point(filled=True, size=DOT, aria=False)
    if len(look.colours) > 1:
        labels = [label for label, _ in look.colours]
        dashes, sizes = (
            alt.Scale(domain=labels, range=[kinds[place % len(kinds)] for place in range(len(labels))])
            for kinds in (DASHES, DOTS)
        )
        legend = legend_of(labels) if look.legend else None
        line = line.encode(strokeDash=alt.StrokeDash("label:N", scale=dashes, legend=legend))
        found = found.encode(size=alt.Size("label:N", scale=sizes, legend=None))
    hover = alt.selection_point(name="hover", nearest=True, on="pointermove", fields=["step"], empty=False)
    alone_or_near = alt.when("datum.alone").then(alt.value(1)).when(hover).then(alt.value(1)).otherwise(alt.value(0))
    words = tips(*said_of_a_point(thinned=look.thinned), SMOOTHED, METRIC, ("label:N", "line"))
    points = found.encode(opacity=alt.value(1) if look.dots else alone_or_near, tooltip=words).add_params(hover)
    raw = base.mark_line(opacity=0.28, strokeWidth=1.2, aria=False, invalid=broken(gaps=look.gaps))
    extremes = base.mark_area(opacity=0.15, aria=False, invalid=broken(gaps=look.gaps))
    below = [extremes.encode(y=_y("low", look), y2="high:Q")] if look.thinned else []
    return _layered(look, [*below, raw.encode(y=_y("value", look)), line], points)


def found_by_pointer(chart: alt.Chart, steps: str | None) -> alt.Chart:
    """The points that the pointer finds; of thinned series with the text `steps`: STEPS or SPAN."""
    touched: alt.Chart = chart.transform_filter("datum.touch")
    return touched.transform_calculate(steps=steps) if steps else touched


def step_tip(title: str, *, thinned: bool) -> tuple[str, ...]:
    """Which step, or which steps under a title that says what of them."""
    return ("steps:N", title) if thinned else ("step:Q", "step", ",")


def said_of_a_point(*, thinned: bool) -> list[tuple[str, ...]]:
    """The tooltip of a value, or of a mean, which needs STEPS."""
    step, value = step_tip("mean of steps", thinned=thinned), ("value:Q", "mean" if thinned else "value", NUMBER)
    return [step, value, *([("low:Q", "lowest", NUMBER), ("high:Q", "highest", NUMBER)] if thinned else [])]


@lru_cache(maxsize=64)
def stacked_spec(look: Look) -> Spec:
    """Areas on top of each other; their tooltips belong to points on their edges."""
    base = _base(look).encode(order=alt.Order("order:Q"))
    y = alt.Y("value:Q", stack="zero", title=None, axis=value_axis(look.axis))
    areas = base.mark_area(opacity=0.85).encode(y=y, description="label:N")
    said = tips(step_tip("mean of steps", thinned=look.thinned), ("value:Q", "seconds", ".3~g"), METRIC)
    points = found_by_pointer(base, SPAN if look.thinned else None).mark_point(opacity=0, size=30, aria=False)
    return _layered(look, [areas], points.encode(y=alt.Y("value:Q", stack="zero", title=None), tooltip=said))


def _layered(look: Look, layers: list[alt.Chart], points: alt.Chart) -> Spec:
    """The layers, a line at the step that a person chose, and the points; with what a person can do there."""
    if look.zoomable:
        layers[-1] = layers[-1].add_params(dragged())
    if look.pickable:
        picked = alt.selection_point(name=PICKED, nearest=True, on="click", fields=[look.picked], empty=False)
        points = points.add_params(picked)
    if look.mark is not None:
        rule = canvas().transform_aggregate(rows="count()").mark_rule(strokeDash=[4, 3], opacity=0.7, color="gray")
        layers.append(rule.encode(x=alt.datum(look.mark)))
    return specification(alt.layer(*layers, points).properties(height=look.height, padding=PADDING))


def _base(look: Look) -> alt.Chart:
    x = x_of(look.x_title, look.x_domain, look.x_axis)
    return canvas().encode(x=x, color=colour(dict(look.colours), legend=look.legend and len(look.colours) > 1))


def x_of(title: str, domain: tuple[float, float] | None, form: str = "~s") -> alt.X:
    """Where points lie from left to right; without a domain, as far as they reach. Steps are whole, and need no title."""
    steps = title == "step"
    scale = alt.Scale(domain=list(domain) if domain else alt.Undefined, nice=False, zero=False)
    return alt.X("x:Q", title=None if steps else title, scale=scale, axis=x_axis(form, whole=steps))


def _y(field: str, look: Look) -> alt.Y:
    # a share that stays 0 lies at the bottom of its axis, not in the middle
    domain = alt.DomainUnionWith(unionWith=[0, 0.02]) if look.axis == SHARE and look.from_zero else alt.Undefined
    scale = alt.Scale(type="log") if look.log else alt.Scale(zero=look.from_zero, nice=True, domain=domain)
    return alt.Y(f"{field}:Q", title=None, scale=scale, axis=value_axis(look.axis))


def x_axis(form: str = "~s", *, whole: bool = False) -> alt.Axis:
    """The axis of steps, samples or time in the d3 format `form`; each tick has its own unit: 0, 500, 1k, not 0k, 0.5k, 1k."""
    least = 1 if whole else alt.Undefined
    return alt.Axis(grid=False, tickCount=6, tickMinStep=least, labelExpr=f"format(datum.value, '{form}')")


def value_axis(axis: str) -> alt.Axis:
    """The axis of values in the d3 format `axis`; a zero is 0, not 0k or 0e+0."""
    zero = "0%" if axis == SHARE else "0"
    form = ".2~%" if axis == SHARE else f".6{axis}"  # an axis around a single value has all its digits otherwise
    label = f"datum.value === 0 ? '{zero}' : datum.label"
    return alt.Axis(tickCount=4, minExtent=AXIS_WIDTH, maxExtent=AXIS_WIDTH, format=form, labelExpr=label)


def has_gaps(table: pd.DataFrame) -> bool:
    """Whether a point of the table has no place."""
    return bool(table[["x", "value", "smooth"]].isna().to_numpy().any())


def broken(*, gaps: bool) -> Literal["break-paths-show-path-domains", "show"]:
    """A line breaks at a missing value. Without gaps, the browser need not check each point."""
    return "break-paths-show-path-domains" if gaps else "show"


def dragged() -> alt.Parameter:
    """The range of x that a person drags over; it is read when they let go, so nothing of it stays in the picture."""
    return alt.selection_interval(name=ZOOMED, encodings=["x"], translate=False, zoom=False)
