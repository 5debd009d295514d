"""Runs, or settings of several runs, on one chart: a line for each, with the band over the seeds of a setting."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isnan
from typing import NamedTuple

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from backend.contract.protocol import EVALUATION
from backend.contract.records import Series
from dashboard.charts.figure import Figure, Spec, canvas, colour, specification, tips
from dashboard.charts.interval import t_quantile
from dashboard.charts.lines import (
    METRIC,
    NUMBER,
    PADDING,
    SHARE,
    SMOOTHED,
    SPAN,
    STEPS,
    broken,
    dragged,
    found_by_pointer,
    has_gaps,
    said_of_a_point,
    step_tip,
    value_axis,
    x_of,
)
from dashboard.charts.meaning import meaning
from dashboard.charts.outcome import Group, Member, Stroke, estimated
from dashboard.charts.palette import NEUTRAL
from dashboard.charts.series import COLUMNS, XAxis, positions, smooth, stretches_of, table_of, touchable, with_gaps

X_TITLES: dict[XAxis, str] = {
    "step": "step",
    "samples": "completions",
    "tokens": "tokens",
    "time": "seconds of training",
}
BAND = ("start", "step", "x", "label", "metric", "mean", "low", "high", "least", "most", "n")
FEW = 6  # more lines than this are thinner, and have no faint raw ones behind them
FEW_SEEDS = 3  # fewer have no interval worth drawing
HEIGHT = 240  # of a chart, pixels
TOUCHED = 160  # points of a chart that the pointer finds
_TOUCHED = "isValid(hover.label) && datum.label === hover.label[0]"  # the line under the pointer


@dataclass(frozen=True)
class View:
    """Which part of a comparison its charts show: `zoom` are the ends of the x axis, `steps` the length of the longest run.

    With `by_run`, each group is a single run, which is drawn with its own values; otherwise with the mean over its seeds.
    """

    axis: XAxis
    weight: float
    log: bool
    steps: int
    zoom: tuple[float, float] | None = None
    by_run: bool = False

    @property
    def domain(self) -> tuple[float, float] | None:
        """What the x axis shows; None follows the data."""
        return self.zoom or ((0, self.steps) if self.axis == "step" and self.steps else None)

    def smoothing(self, name: str) -> float:
        """Evaluations are few, and means of many samples already."""
        return 0.0 if name.startswith(EVALUATION) else self.weight

    def inside(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows that lie within the zoom, and the next on either side, so that lines lead out of the picture."""
        if self.zoom is None:
            return table
        x, (low, high) = table["x"], self.zoom
        before, after = x[x < low].max(), x[x > high].min()
        kept: pd.DataFrame = table[x.between(low if isnan(before) else before, high if isnan(after) else after)]
        return kept


class Look(NamedTuple):
    """The parts of a chart that stay the same while the runs go on. Each line has a label, a stroke, and whether it is in front."""

    lines: tuple[tuple[str, Stroke, bool], ...]
    by_run: bool
    axis: str
    x_title: str
    x_domain: tuple[float, float] | None
    log: bool
    dots: bool
    zoomed: bool
    gaps: bool
    thinned: bool


def comparison_figure(name: str, groups: Sequence[Group], view: View, front: Collection[int]) -> Figure:
    """The metric `name` of each group; a group whose number is not in `front` is a thin grey line.

    On a log scale, values that are not above 0 are left out.
    """
    table = (_lines if view.by_run else _bands)(name, groups, view, front)
    look = Look(
        lines=tuple((group.label, group.stroke, group.number in front) for group in groups),
        by_run=view.by_run,
        axis=meaning(name).axis,
        x_title=X_TITLES[view.axis],
        x_domain=view.domain,
        log=view.log,
        dots=name.startswith(EVALUATION),
        zoomed=view.zoom is not None,
        gaps=view.by_run and has_gaps(table),
        thinned="low" in table if view.by_run else bool((table["start"] < table["step"]).any()),
    )
    return Figure(_spec(look), touchable(table, TOUCHED))


def _lines(name: str, groups: Sequence[Group], view: View, front: Collection[int]) -> pd.DataFrame:
    """The points of single runs, with the extremes of each stretch of steps if some run is thinned."""
    drawn = [(group, group.members[0]) for group in groups if name in group.members[0].metrics.series]
    if not drawn:
        return pd.DataFrame(columns=[*COLUMNS, "front"])
    series = [(name, group.label, run.metrics.series[name]) for group, run in drawn]
    table = table_of(series, view.smoothing(name))
    table = table.assign(
        x=np.concatenate([positions(run.metrics, name, view.axis, run.completions_per_step) for _, run in drawn]),
        front=np.repeat([group.number in front for group, _ in drawn], [len(one.step) for _, _, one in series]),
    )
    table = table[np.concatenate([_own(one, run.begins) for (_, run), (*_, one) in zip(drawn, series, strict=True)])]
    table = table[table["x"].notna()]  # of a run that lacks what places it along this axis
    if view.zoom is not None:
        parts = [view.inside(of_line) for _, of_line in table.groupby("label", sort=False)]
        table = pd.concat(parts, ignore_index=True)
    if view.log:
        fields = [field for field in ("value", "smooth", "low", "high") if field in table]
        table = table.assign(**{field: table[field].where(table[field] > 0) for field in fields})
        if "low" in table:  # a band from 0 on begins at the bottom
            bottom = table[["low", "value"]].min(axis=None)
            table = table.assign(low=table["low"].fillna(bottom).where(table["high"].notna()))
    return with_gaps(table)


def _own(series: Series, begins: int) -> NDArray[np.bool_]:
    """Which points are drawn of a line that begins at a step: those from there on, and the last before, where it leaves another line."""
    before = sum(step < begins for step in series.step)
    return np.arange(len(series.step)) >= before - 1


def _bands(name: str, groups: Sequence[Group], view: View, front: Collection[int]) -> pd.DataFrame:
    """The mean of each group, with the band as it is drawn, `lower` to `upper`, for those in front.

    The band is the 95 % interval of three seeds or more, cut where it would flatten the lines that it belongs to; of two seeds,
    whose interval is 25 standard errors wide, the values themselves. No share is outside 0 to 1.
    """
    parts = [band(group, name, view).assign(front=group.number in front) for group in groups]
    table = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    mean = table["mean"].where(table["mean"] > 0) if view.log else table["mean"]
    margin = 0.5 * (mean.max() - mean.min()) if len(mean) > 1 else 0.0
    least, most = (mean.min() if view.log else mean.min() - margin), mean.max() + margin
    if meaning(name).axis == SHARE:
        least, most = max(0.0, least), min(1.0, most)
    in_front, few = table["front"].astype(bool), table["n"] < FEW_SEEDS
    lower = table["low"].where(~few, table["least"]).clip(lower=least)
    upper = table["high"].where(~few, table["most"]).clip(upper=most)
    return table.assign(smooth=mean, lower=lower.where(in_front), upper=upper.where(in_front))


def band(group: Group, name: str, view: View) -> pd.DataFrame:
    """Mean and 95 % interval over the setting's seeds at each stretch of steps, of series smoothed one by one.

    Runs of one seed count once, by their mean. A stretch counts if at least two seeds have a value (one, if only one has any); a
    single value has no interval. `least` and `most` are the ends of the values, `step` is the last step that a run has logged.
    """
    parts = [_points(member, name, view) for member in group.members if name in member.metrics.series]
    parts = [part for part in parts if len(part)]
    if not parts:
        return pd.DataFrame(columns=list(BAND))
    points = pd.concat(parts)
    seeds = points.groupby(["start", "seed"], as_index=False).agg({"step": "max", "x": "mean", "value": "mean"})
    each = seeds.groupby("start")
    # the place of a stretch is the mean of its seeds'
    in_sight = view.inside(each[["x"]].mean()).index
    values = each["value"]
    table = pd.DataFrame(
        {"step": each["step"].max(), "x": each["x"].mean(), "mean": values.mean(), "n": values.count()}
    )
    table = table.assign(least=values.min(), most=values.max())
    half = values.std() * table["n"].map(lambda n: t_quantile(n - 1) if n > 1 else float("nan")) / table["n"] ** 0.5
    table = table.assign(low=table["mean"] - half, high=table["mean"] + half, label=group.label, metric=name)
    shown = table.loc[in_sight]
    return shown[shown["n"] >= min(2, seeds["seed"].nunique())].reset_index()[list(BAND)]


def _points(member: Member, name: str, view: View) -> pd.DataFrame:
    """One run: a row for each stretch in which it has a value."""
    series = member.metrics.series[name]
    of = stretches_of(series)
    table = pd.DataFrame(
        {
            "seed": member.seed,
            "start": pd.Series(of.start, dtype="int64"),
            "step": pd.Series(series.step, dtype="int64"),
            "x": positions(member.metrics, name, view.axis, member.completions_per_step),
            "value": pd.Series(smooth(series.value, view.smoothing(name), of.finite), dtype="float64"),
        }
    )
    return table.dropna()


@lru_cache(maxsize=256)
def _spec(look: Look) -> Spec:
    """Lines over columns x, smooth, label, metric, step, front, touch; the one under the pointer comes forward.

    Behind a few runs lie their own values, over `value`, and the extremes of thinned ones, over low and high; behind groups their
    bands, over lower and upper.
    """
    labels = [label for label, _, _ in look.lines]
    colours = colour({label: stroke.colour if front else NEUTRAL for label, stroke, front in look.lines}, legend=False)
    x = x_of(look.x_title, look.x_domain)
    base = canvas().encode(x=x, color=colours, detail="label:N", description="label:N")
    scale = alt.Scale(type="log") if look.log else alt.Scale(zero=False, nice=True)
    broken_lines = broken(gaps=look.gaps)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=None, scale=scale, axis=value_axis(look.axis))

    def line(of: alt.Chart, width: float, opacity: float = 1.0) -> alt.Chart:
        drawn: alt.Chart = of.mark_line(clip=look.zoomed, strokeWidth=width, opacity=opacity, invalid=broken_lines)
        return drawn

    def area(low: str, high: str, opacity: float) -> alt.Chart:
        drawn: alt.Chart = base.mark_area(clip=look.zoomed, opacity=opacity, aria=False, invalid=broken_lines)
        return drawn.encode(y=y(low), y2=f"{high}:Q")

    few = len(labels) <= FEW
    smooth = base.encode(y=y("smooth"))
    dashed = smooth
    if any(stroke.dashed for _, stroke, _ in look.lines):
        dashes = [[5, 3] if stroke.dashed else [1, 0] for _, stroke, _ in look.lines]
        dash = alt.Scale(domain=labels, range=dashes)
        dashed = smooth.encode(strokeDash=alt.StrokeDash("label:N", scale=dash, legend=None))
    layers = [] if look.by_run else [area("lower", "upper", 0.16)]
    if look.by_run and few and look.thinned:
        layers.append(area("low", "high", 0.1))
    if look.by_run and few and not look.dots:
        layers.append(line(base.encode(y=y("value")), 1.2, 0.25))
    in_front = dashed
    if not all(front for _, _, front in look.lines):
        layers.append(line(smooth.transform_filter("!datum.front"), 1, 0.5))
        in_front = dashed.transform_filter("datum.front")
    layers.append(line(in_front, 2 if few else 1.6).add_params(dragged()))
    layers.append(line(dashed.transform_filter(_TOUCHED), 3))
    layers.append(_pointed(smooth, look))
    return specification(alt.layer(*layers).properties(height=HEIGHT, padding=PADDING))


def _pointed(lines: alt.Chart, look: Look) -> alt.Chart:
    """The points that the pointer finds; evaluations in front, and points between two gaps, are dots."""
    hover = alt.selection_point(
        name="hover", nearest=True, on="pointermove", clear="pointerout", fields=["label", "step"], empty=False
    )
    shown = alt.when("datum.alone").then(alt.value(1)).when(hover).then(alt.value(1))
    shown = shown.when("datum.front").then(alt.value(1)) if look.dots else shown
    if look.by_run:
        smoothed = [] if look.dots else [SMOOTHED]
        said = [("label:N", "run"), *said_of_a_point(thinned=look.thinned), *smoothed]
    else:
        step = step_tip("means of steps", thinned=look.thinned)
        said = [("label:N", "setting"), step, ("mean:Q", "mean", NUMBER), *estimated(NUMBER)]
    touched = found_by_pointer(lines, (STEPS if look.by_run else SPAN) if look.thinned else None)
    points: alt.Chart = touched.mark_point(clip=look.zoomed, filled=True, size=50, aria=False)
    points = points.encode(opacity=shown.otherwise(alt.value(0)), tooltip=tips(*said, METRIC))
    return points.add_params(hover)
