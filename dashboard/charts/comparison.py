"""Several runs on one chart, and what each came to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isnan
from typing import NamedTuple

import altair as alt
import numpy as np
import pandas as pd

from backend.contract.protocol import EVALUATION
from backend.contract.records import Metrics, Series
from dashboard.charts.figure import Figure, Spec, canvas, specification
from dashboard.charts.lines import PADDING, broken, dragged, has_gaps, value_axis
from dashboard.charts.meaning import meaning
from dashboard.charts.palette import NEUTRAL
from dashboard.charts.series import COLUMNS, XAxis, positions, table_of, touchable

X_TITLES: dict[XAxis, str] = {
    "step": "step",
    "samples": "completions",
    "tokens": "tokens",
    "time": "seconds of training",
}
FEW = 6  # more lines than this are thinner, and have no faint raw ones behind them
HEIGHT = 240  # of a chart, pixels
_TOUCHED = "isValid(hover.label) && datum.label === hover.label[0]"  # the line under the pointer
TOUCHED = 160  # points of a chart that the pointer finds


@dataclass(frozen=True)
class View:
    """How the charts of a comparison are looked at; `zoom` are the ends of the x axis, `steps` those of the longest run."""

    axis: XAxis
    weight: float
    log: bool
    steps: int
    zoom: tuple[float, float] | None = None

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


@dataclass(frozen=True)
class Line:
    """One run in a comparison; `label` is unique among them. One that is not in front is a thin grey line."""

    label: str
    colour: str
    metrics: Metrics
    completions_per_step: int
    front: bool = True


@dataclass(frozen=True)
class Outcome:
    """What a metric came to: the mean of its last finite values, the best and its step. None where there is none."""

    final: float | None
    best: float | None
    best_step: int | None


class Look(NamedTuple):
    """What stays the same while the runs go on. Each line has a label, a colour, and whether it is in front."""

    lines: tuple[tuple[str, str, bool], ...]
    axis: str
    x_title: str
    x_domain: tuple[float, float] | None
    log: bool
    dots: bool
    zoomed: bool
    gaps: bool


def comparison_figure(name: str, lines: Sequence[Line], view: View) -> Figure:
    """The metric `name` of several runs.

    On a log scale, what is not above 0 has no place and is left out.
    """
    drawn = [line for line in lines if line.metrics.series.get(name) is not None]
    table = _placed(name, drawn, view) if drawn else pd.DataFrame(columns=[*COLUMNS, "front"])
    if view.log:
        table = table.assign(**{field: table[field].where(table[field] > 0) for field in ("value", "smooth")})
    look = Look(
        lines=tuple((line.label, line.colour, line.front) for line in lines),
        axis=meaning(name).axis,
        x_title=X_TITLES[view.axis],
        x_domain=view.domain,
        log=view.log,
        dots=name.startswith(EVALUATION),
        zoomed=view.zoom is not None,
        gaps=has_gaps(table),
    )
    return Figure(_spec(look), touchable(table, TOUCHED))


def _placed(name: str, lines: Sequence[Line], view: View) -> pd.DataFrame:
    """The points of the lines, where they lie on the axis."""
    series = [line.metrics.series[name] for line in lines]
    table = table_of([(name, line.label, one) for line, one in zip(lines, series, strict=True)], view.smoothing(name))
    table = table.assign(
        x=np.concatenate([positions(line.metrics, name, view.axis, line.completions_per_step) for line in lines]),
        front=np.repeat([line.front for line in lines], [len(one.step) for one in series]),
    )
    if view.zoom is None:
        return table
    return pd.concat([view.inside(of_line) for _, of_line in table.groupby("label", sort=False)], ignore_index=True)


def x_of(title: str, domain: tuple[float, float] | None) -> alt.X:
    """The x axis that all charts of a comparison share; steps need no title."""
    return alt.X(
        "x:Q",
        title=None if title == X_TITLES["step"] else title,
        scale=alt.Scale(domain=alt.Undefined if domain is None else list(domain), nice=False, zero=False),
        axis=alt.Axis(grid=False, tickCount=6, format="~s"),
    )


@lru_cache(maxsize=256)
def _spec(look: Look) -> Spec:
    """Lines over columns x, value, smooth, label, metric, step, front, touch; the one under the pointer comes forward."""
    labels = [label for label, _, _ in look.lines]
    colours = [colour if front else NEUTRAL for _, colour, front in look.lines]
    colour = alt.Color("label:N", scale=alt.Scale(domain=labels, range=colours), legend=None)
    base = canvas().encode(x=x_of(look.x_title, look.x_domain), color=colour)
    scale = alt.Scale(type="log") if look.log else alt.Scale(zero=False, nice=True)

    def line(of: alt.Chart, width: float, opacity: float = 1.0) -> alt.Chart:
        drawn: alt.Chart = of.mark_line(
            clip=look.zoomed, strokeWidth=width, opacity=opacity, invalid=broken(gaps=look.gaps)
        )
        return drawn

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=None, scale=scale, axis=value_axis(look.axis))

    hover = alt.selection_point(
        name="hover", nearest=True, on="pointermove", clear="pointerout", fields=["label", "step"], empty=False
    )
    smooth = base.encode(y=y("smooth"), detail="label:N", description="label:N")
    few, some_behind = len(labels) <= FEW, not all(front for _, _, front in look.lines)
    front = smooth.transform_filter("datum.front") if some_behind else smooth
    shown = alt.when("datum.alone").then(alt.value(1)).when(hover).then(alt.value(1))
    shown = shown.when("datum.front").then(alt.value(1)) if look.dots else shown
    points = (
        smooth.transform_filter("datum.touch")
        .mark_point(clip=look.zoomed, filled=True, size=50, aria=False)
        .encode(opacity=shown.otherwise(alt.value(0)), tooltip=_tooltip(smoothed=not look.dots))
    )
    raw = [line(base.encode(y=y("value")), 1.2, 0.25)] if few and not look.dots else []
    behind = [line(smooth.transform_filter("!datum.front"), 1, 0.5)] if some_behind else []
    touched = line(smooth.transform_filter(_TOUCHED), 3)
    layers = [*raw, *behind, line(front, 2 if few else 1.6).add_params(dragged()), touched, points.add_params(hover)]
    return specification(alt.layer(*layers).properties(height=HEIGHT, padding=PADDING))


def _tooltip(*, smoothed: bool) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("label:N", title="run"),
        alt.Tooltip("step:Q", title="step", format=","),
        alt.Tooltip("value:Q", title="value", format=".4~g"),
        *([alt.Tooltip("smooth:Q", title="smoothed", format=".4~g")] if smoothed else []),
        alt.Tooltip("metric:N", title="metric"),
    ]


def outcome(name: str, series: Mapping[str, Series], tail: int) -> Outcome:
    """What the metric came to: the mean of the last `tail` values, of an evaluation the last; best where more or less is better."""
    known = (
        [(step, value) for step, value in zip(series[name].step, series[name].value, strict=True) if value is not None]
        if name in series
        else []
    )
    if not known:
        return Outcome(None, None, None)
    last = [value for _, value in known][-1 if name.startswith(EVALUATION) else -tail :]
    better = meaning(name).better
    best_step, best = (
        (None, None) if better is None else (max if better == "higher" else min)(known, key=lambda point: point[1])
    )
    return Outcome(sum(last) / len(last), best, best_step)
