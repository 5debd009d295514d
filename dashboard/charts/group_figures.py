"""Groups of runs as pictures: mean lines with bands, some in front of the others, and what each gained."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import altair as alt
import pandas as pd

from backend.contract.protocol import EVALUATION
from dashboard.charts.comparison import HEIGHT, TOUCHED, X_TITLES, View, x_of
from dashboard.charts.figure import Figure, Spec, canvas, specification
from dashboard.charts.lines import PADDING, SHARE, SPAN, dragged, value_axis
from dashboard.charts.meaning import meaning
from dashboard.charts.palette import NEUTRAL
from dashboard.charts.seed_groups import COLUMNS, SUCCESS, Group, band, by_gain, gain
from dashboard.charts.series import touchable

FEW = 3  # so many seeds have an interval worth drawing
ROW = 26  # pixels of a group in the picture of the gains
AXIS_HEIGHT = 60  # and of what stands below them: the numbers and the title
_NUMBER = ".3~f"


class Stroke(NamedTuple):
    """How a group is drawn; one that is not in front is a thin grey line."""

    label: str
    colour: str
    dashed: bool
    front: bool


class BandLook(NamedTuple):
    """What stays the same while the groups' data grow."""

    strokes: tuple[Stroke, ...]
    axis: str
    x_title: str
    x_domain: tuple[float, float] | None
    log: bool
    dots: bool
    zoomed: bool
    thinned: bool


def strokes(groups: Sequence[Group], front: frozenset[str]) -> tuple[Stroke, ...]:
    """How each group is drawn where those named are in front."""
    return tuple(Stroke(one.label, one.colour, one.dashed, one.label in front) for one in groups)


def band_figure(name: str, groups: Sequence[Group], view: View, front: frozenset[str]) -> Figure:
    """The metric `name`: each group's mean over its seeds, with the 95 % band of those in front."""
    parts = [band(group, name, view) for group in groups]
    parts = [part.assign(front=part["label"].isin(front)) for part in parts if len(part)]
    empty = pd.DataFrame(columns=[*COLUMNS, "front", "lower", "upper"])
    table = _cut(pd.concat(parts, ignore_index=True), meaning(name).axis, view.log) if parts else empty
    look = BandLook(
        strokes(groups, front),
        meaning(name).axis,
        X_TITLES[view.axis],
        view.domain,
        view.log,
        name.startswith(EVALUATION),
        view.zoom is not None,
        bool((table["start"] < table["step"]).any()),
    )
    return Figure(_band_spec(look), touchable(table, TOUCHED))


def gain_figure(groups: Sequence[Group], front: frozenset[str]) -> Figure:
    """What each group gained in held-out success: a dot with its 95 % interval, the largest on top."""
    ranked = by_gain(groups)
    rows = [
        {
            "label": group.label,
            "mean": found.mean,
            "low": found.low,
            "high": found.high,
            "lower": None if found.low is None else max(-1.0, found.low),
            "upper": None if found.high is None else min(1.0, found.high),
            "n": found.n,
        }
        for group in ranked
        if (found := gain(group)) is not None
    ]
    return Figure(_gain_spec(strokes(ranked, front)), pd.DataFrame(rows))


def _cut(table: pd.DataFrame, axis: str, log: bool) -> pd.DataFrame:
    """With the band as it is drawn: the 95 % interval of three seeds or more, cut where it would flatten the lines that it belongs
    to; of two seeds, whose interval is 25 standard errors wide, the values themselves. No share is outside 0 to 1.
    """
    mean = table["mean"].where(table["mean"] > 0) if log else table["mean"]
    margin = 0.5 * (mean.max() - mean.min()) if len(mean) > 1 else 0.0
    least, most = (mean.min() if log else mean.min() - margin), mean.max() + margin
    if axis == SHARE:
        least, most = max(0.0, least), min(1.0, most)
    front = table["front"].astype(bool)
    few = table["n"] < FEW
    lower = table["low"].where(~few, table["least"]).clip(lower=least)
    upper = table["high"].where(~few, table["most"]).clip(upper=most)
    return table.assign(mean=mean, lower=lower.where(front), upper=upper.where(front))


def _colour(drawn: Sequence[Stroke]) -> alt.Color:
    labels = [one.label for one in drawn]
    colours = [one.colour if one.front else NEUTRAL for one in drawn]
    return alt.Color("label:N", scale=alt.Scale(domain=labels, range=colours), legend=None)


@lru_cache(maxsize=256)
def _band_spec(look: BandLook) -> Spec:
    base = canvas().encode(x=x_of(look.x_title, look.x_domain), color=_colour(look.strokes), description="label:N")
    scale = alt.Scale(type="log") if look.log else alt.Scale(zero=False, nice=True)
    y = alt.Y("mean:Q", title=None, scale=scale, axis=value_axis(look.axis))
    behind = base.transform_filter("!datum.front").mark_line(clip=look.zoomed, strokeWidth=1, opacity=0.45).encode(y=y)
    areas = (
        base.transform_filter("datum.front")
        .mark_area(clip=look.zoomed, opacity=0.16)
        .encode(y=alt.Y("lower:Q", scale=scale), y2="upper:Q")
    )
    dashes = alt.StrokeDash(
        "label:N",
        scale=alt.Scale(
            domain=[one.label for one in look.strokes], range=[[5, 3] if one.dashed else [1, 0] for one in look.strokes]
        ),
        legend=None,
    )
    lines = (
        base.transform_filter("datum.front").mark_line(clip=look.zoomed, strokeWidth=2.2).encode(y=y, strokeDash=dashes)
    )
    layers = [behind.add_params(dragged()), areas, lines, _points(base, y, look)]
    return specification(alt.layer(*layers).properties(height=HEIGHT, padding=PADDING))


def _points(base: alt.Chart, y: alt.Y, look: BandLook) -> alt.Chart:
    hover = alt.selection_point(name="hover", nearest=True, on="pointermove", fields=["step", "label"], empty=False)
    shown = alt.when(hover).then(alt.value(1))
    shown = shown.when("datum.front").then(alt.value(1)) if look.dots else shown
    touched = base.transform_filter("datum.touch")
    points: alt.Chart = (
        (touched.transform_calculate(steps=SPAN) if look.thinned else touched)
        .mark_point(clip=look.zoomed, filled=True, size=50, aria=False)
        .encode(
            y=y,
            opacity=shown.otherwise(alt.value(0)),
            tooltip=[
                alt.Tooltip("label:N", title="group"),
                alt.Tooltip("steps:N", title="means of steps")
                if look.thinned
                else alt.Tooltip("step:Q", title="step", format=","),
                alt.Tooltip("mean:Q", title="mean", format=".4~g"),
                alt.Tooltip("low:Q", title="95 % from", format=".4~g"),
                alt.Tooltip("high:Q", title="to", format=".4~g"),
                alt.Tooltip("n:Q", title="seeds"),
                alt.Tooltip("metric:N", title="metric"),
            ],
        )
    )
    return points.add_params(hover)


@lru_cache(maxsize=256)
def _gain_spec(drawn: tuple[Stroke, ...]) -> Spec:
    labels = [one.label for one in drawn]
    y = alt.Y(
        "label:N",
        title=None,
        sort=labels,
        scale=alt.Scale(domain=labels),
        axis=alt.Axis(labelLimit=260, labelFontSize=13, labelFlush=False, labelBound=False),
    )
    x = alt.X(
        "mean:Q",
        title="last − first, mean over seeds with its 95 % interval",
        axis=alt.Axis(format="+.2~f", tickCount=8, labelExpr="datum.value === 0 ? '0' : datum.label"),
    )
    base = canvas().encode(y=y, color=_colour(drawn))
    rule = canvas().transform_aggregate(rows="count()").mark_rule(strokeDash=[4, 3], color=NEUTRAL)
    zero = rule.encode(x=alt.datum(0))
    intervals = base.mark_rule(strokeWidth=2.5).encode(x=alt.X("lower:Q"), x2="upper:Q")
    dots = base.mark_point(filled=True, size=95, opacity=1).encode(
        x=x,
        tooltip=[
            alt.Tooltip("label:N", title="group"),
            alt.Tooltip("mean:Q", title="gain", format=_NUMBER),
            alt.Tooltip("low:Q", title="95 % from", format=_NUMBER),
            alt.Tooltip("high:Q", title="to", format=_NUMBER),
            alt.Tooltip("n:Q", title="seeds"),
        ],
    )
    values = base.mark_text(align="left", dx=9, dy=-9, fontSize=11).encode(
        x="mean:Q", text=alt.Text("mean:Q", format="+.3f")
    )
    return specification(
        alt.layer(zero, intervals, dots, values).properties(height=ROW * len(labels) + AXIS_HEIGHT, padding=PADDING)
    )


SUCCESS_TITLE = f"Gain in {meaning(SUCCESS).title.lower()}"
