"""Metrics as lines: a smooth line over a faint raw one and its extremes, a cursor, and steps that can be clicked."""

from functools import lru_cache
from typing import Literal, NamedTuple

import altair as alt
import pandas as pd

from dashboard.charts.figure import PICKED, ZOOMED, Figure, Spec, canvas, colour, specification
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
    hover = alt.selection_point(name="hover", nearest=True, on="pointermove", fields=["step"], empty=False)
    touched = smooth.transform_filter("datum.touch")
    points = (
        (touched.transform_calculate(steps=STEPS) if look.thinned else touched)
        .mark_point(filled=True, size=55, aria=False)
        .encode(
            opacity=alt.value(1)
            if look.dots
            else alt.when("datum.alone").then(alt.value(1)).when(hover).then(alt.value(1)).otherwise(alt.value(0)),
            tooltip=[
                *said_of_a_point(thinned=look.thinned, smoothed=True),
                alt.Tooltip("metric:N", title="metric"),
                alt.Tooltip("label:N", title="line"),
            ],
        )
        .add_params(hover)
    )
    if look.pickable:
        points = points.add_params(
            alt.selection_point(name=PICKED, nearest=True, on="click", fields=[look.picked], empty=False)
        )
    raw = base.mark_line(opacity=0.28, strokeWidth=1.2, aria=False, invalid=broken(gaps=look.gaps)).encode(
        y=_y("value", look)
    )
    if look.zoomable:
        raw = raw.add_params(dragged())
    extremes = [_extremes(base, look)] if look.thinned else []
    layers = [*extremes, raw, line, *_marked(look), points]
    return specification(alt.layer(*layers).properties(height=look.height, padding=PADDING))


def _extremes(base: alt.Chart, look: Look) -> alt.Chart:
    area: alt.Chart = base.mark_area(opacity=0.15, aria=False, invalid=broken(gaps=look.gaps))
    return area.encode(y=_y("low", look), y2="high:Q")


def said_of_a_point(*, thinned: bool, smoothed: bool) -> list[alt.Tooltip]:
    """The tooltip of a value, or of a mean, which needs STEPS."""
    number = ".4~g"
    own = (
        [
            alt.Tooltip("steps:N", title="mean of steps"),
            alt.Tooltip("value:Q", title="mean", format=number),
            alt.Tooltip("low:Q", title="lowest", format=number),
            alt.Tooltip("high:Q", title="highest", format=number),
        ]
        if thinned
        else [
            alt.Tooltip("step:Q", title="step", format=","),
            alt.Tooltip("value:Q", title="value", format=number),
        ]
    )
    return [*own, *([alt.Tooltip("smooth:Q", title="smoothed", format=number)] if smoothed else [])]


@lru_cache(maxsize=64)
def stacked_spec(look: Look) -> Spec:
    """Areas on top of each other; their tooltips belong to points on their edges."""
    areas = (
        _base(look)
        .mark_area(opacity=0.85)
        .encode(
            y=alt.Y("value:Q", stack="zero", title=None, axis=value_axis(look.axis)),
            order=alt.Order("order:Q"),
            description="label:N",
        )
    )
    picked = alt.selection_point(name=PICKED, nearest=True, on="click", fields=[look.picked], empty=False)
    touched = _base(look).transform_filter("datum.touch")
    points = (
        (touched.transform_calculate(steps=SPAN) if look.thinned else touched)
        .mark_point(opacity=0, size=30, aria=False)
        .encode(
            y=alt.Y("value:Q", stack="zero", title=None),
            order=alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("steps:N", title="mean of steps")
                if look.thinned
                else alt.Tooltip("step:Q", title="step", format=","),
                alt.Tooltip("value:Q", title="seconds", format=".3~g"),
                alt.Tooltip("metric:N", title="metric"),
            ],
        )
    )
    if look.zoomable:
        areas = areas.add_params(dragged())
    layers = [areas, *_marked(look), points.add_params(picked) if look.pickable else points]
    return specification(alt.layer(*layers).properties(height=look.height, padding=PADDING))


def _base(look: Look) -> alt.Chart:
    domain = alt.Undefined if look.x_domain is None else list(look.x_domain)
    steps = look.x_title == "step"
    x = alt.X(
        "x:Q",
        title=None if steps else look.x_title,
        scale=alt.Scale(domain=domain, nice=False, zero=False),
        axis=x_axis(look.x_axis, whole=steps),
    )
    return canvas().encode(x=x, color=colour(dict(look.colours), legend=look.legend and len(look.colours) > 1))


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
    form = ".2~%" if axis == SHARE else axis  # an axis around a single value has all its digits otherwise
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


def _marked(look: Look) -> list[alt.Chart]:
    """A line at the step that a person chose."""
    if look.mark is None:
        return []
    rule = canvas().transform_aggregate(rows="count()").mark_rule(strokeDash=[4, 3], opacity=0.7, color="gray")
    return [rule.encode(x=alt.datum(look.mark))]
