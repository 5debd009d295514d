"""Several runs on one chart, and what each came to."""

from collections.abc import Callable, Mapping, Sequence
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
from dashboard.charts.lines import PADDING, STEPS, broken, dragged, has_gaps, said_of_a_point, value_axis, x_axis
from dashboard.charts.meaning import meaning
from dashboard.charts.palette import NEUTRAL
from dashboard.charts.places import XAxis, positions
from dashboard.charts.series import COLUMNS, stretches_of, table_of, touchable, with_gaps

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
    thinned: bool


def comparison_figure(name: str, lines: Sequence[Line], view: View) -> Figure:
    """The metric `name` of several runs.

    On a log scale, what is not above 0 has no place and is left out.
    """
    drawn = [line for line in lines if line.metrics.series.get(name) is not None]
    table = _placed(name, drawn, view) if drawn else pd.DataFrame(columns=[*COLUMNS, "front"])
    if view.log:
        fields = [field for field in ("value", "smooth", "low", "high") if field in table]
        table = table.assign(**{field: table[field].where(table[field] > 0) for field in fields})
        if "low" in table:  # a band from 0 on begins at the bottom
            table = table.assign(
                low=table["low"].fillna(table[["low", "value"]].min(axis=None)).where(table["high"].notna())
            )
    table = with_gaps(table)
    look = Look(
        lines=tuple((line.label, line.colour, line.front) for line in lines),
        axis=meaning(name).axis,
        x_title=X_TITLES[view.axis],
        x_domain=view.domain,
        log=view.log,
        dots=name.startswith(EVALUATION),
        zoomed=view.zoom is not None,
        gaps=has_gaps(table),
        thinned="low" in table,
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
        axis=x_axis(whole=title == X_TITLES["step"]),
    )


@lru_cache(maxsize=256)
def _spec(look: Look) -> Spec:
    """Lines over columns x, value, smooth, label, metric, step, front, touch; the one under the pointer comes forward.

    Behind a few thinned lines lie their extremes, over low and high.
    """
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
    pointed = smooth.transform_filter("datum.touch")
    points = (
        (pointed.transform_calculate(steps=STEPS) if look.thinned else pointed)
        .mark_point(clip=look.zoomed, filled=True, size=50, aria=False)
        .encode(opacity=shown.otherwise(alt.value(0)), tooltip=_tooltip(look))
    )
    raw = [line(base.encode(y=y("value")), 1.2, 0.25)] if few and not look.dots else []
    if look.thinned and few:
        area = base.mark_area(clip=look.zoomed, opacity=0.1, aria=False, invalid=broken(gaps=look.gaps))
        raw.insert(0, area.encode(y=y("low"), y2="high:Q"))
    behind = [line(smooth.transform_filter("!datum.front"), 1, 0.5)] if some_behind else []
    touched = line(smooth.transform_filter(_TOUCHED), 3)
    layers = [*raw, *behind, line(front, 2 if few else 1.6).add_params(dragged()), touched, points.add_params(hover)]
    return specification(alt.layer(*layers).properties(height=HEIGHT, padding=PADDING))


def _tooltip(look: Look) -> list[alt.Tooltip]:
    said = said_of_a_point(thinned=look.thinned, smoothed=not look.dots)
    return [alt.Tooltip("label:N", title="run"), *said, alt.Tooltip("metric:N", title="metric")]


def outcome(name: str, series: Mapping[str, Series], tail: int) -> Outcome:
    """What the metric came to: the mean of the last `tail` values, of an evaluation the last; best where more or less is better.

    Of a thinned series the best is its best value, and not its best mean.
    """
    if name not in series:
        return Outcome(None, None, None)
    of, better = stretches_of(series[name]), meaning(name).better
    best_step, best = _extreme(of.low_step, of.low, min) if better == "lower" else _extreme(of.high_step, of.high, max)
    last = _final(series[name], 1 if name.startswith(EVALUATION) else tail)
    return Outcome(last, *((best, best_step) if better else (None, None)))


def _extreme(
    steps: Sequence[int | None], values: Sequence[float | None], which: Callable[..., tuple[int, float]]
) -> tuple[int | None, float | None]:
    known = [(step, value) for step, value in zip(steps, values, strict=True) if step is not None and value is not None]
    return which(known, key=lambda point: point[1]) if known else (None, None)


def _final(series: Series, tail: int) -> float | None:
    """The mean of the last `tail` finite values. A stretch of which only some are wanted counts with its mean."""
    total, lacking = 0.0, tail
    for value, finite in zip(series.value[::-1], stretches_of(series).finite[::-1], strict=True):
        if value is not None and lacking:
            wanted = min(finite, lacking)
            total, lacking = total + value * wanted, lacking - wanted
    return total / (tail - lacking) if lacking < tail else None
