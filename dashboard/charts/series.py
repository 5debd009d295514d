"""Metric series as tables that charts draw: smoothed, and over steps, samples, tokens or wall time."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from backend.contract.records import Metrics, Series

XAxis = Literal["step", "samples", "tokens", "time"]
TOTALS = ("num_tokens", "step_time")  # from these come the tokens and the time so far
COLUMNS = ("step", "x", "metric", "label", "value", "smooth", "alone")


def smooth(values: Sequence[float | None], weight: float) -> list[float | None]:
    """Exponential moving average without the bias of its start; what is missing stays missing and moves nothing.

    `weight` is the share of the past, from 0 (as it is) to below 1.
    """
    smoothed: list[float | None] = []
    level = mass = 0.0
    for value in values:
        if value is None:
            smoothed.append(None)
            continue
        level = weight * level + (1 - weight) * value
        mass = weight * mass + (1 - weight)
        smoothed.append(level / mass)
    return smoothed


def long_table(series: Mapping[str, Series], labels: Mapping[str, str], weight: float) -> pd.DataFrame:
    """The series named in `labels`, one row for each point, with the label that the legend shows."""
    return table_of([(name, label, series[name]) for name, label in labels.items() if name in series], weight)


def table_of(lines: Sequence[tuple[str, str, Series]], weight: float) -> pd.DataFrame:
    """Lines below each other, each a metric, a label and its series; smoothed one by one. One table is made, not one for each line."""
    counts = [len(series.step) for _, _, series in lines]
    steps = np.array([step for _, _, series in lines for step in series.step], dtype=np.int64)
    smoothed = [value for _, _, series in lines for value in smooth(series.value, weight)]
    return pd.DataFrame(
        {
            "step": steps,
            "x": steps.astype(np.float64),
            "metric": pd.Series(np.repeat([name for name, _, _ in lines], counts), dtype="str"),
            "label": pd.Series(np.repeat([label for _, label, _ in lines], counts), dtype="str"),
            "value": np.array([value for _, _, series in lines for value in series.value], dtype=np.float64),
            "smooth": np.array(smoothed, dtype=np.float64),
            "alone": np.repeat([count == 1 for count in counts], counts),  # a line of one point is drawn as a dot
        },
        columns=list(COLUMNS),
    )


def touchable(table: pd.DataFrame, most: int) -> pd.DataFrame:
    """With the column `touch`: the points that a pointer finds, about `most` at the most, evenly along each line, its ends among them.

    The browser keeps two shapes and a text for each of them, and of a line's other points none: that is most of what a chart costs.
    """
    lines = table.groupby("label")["x"]
    place, count = lines.cumcount(), lines.transform("size")
    every = max(1, math.ceil(len(table) / most))
    return table.assign(touch=(place % every == 0) | (place == count - 1))


def on_common_steps(table: pd.DataFrame) -> pd.DataFrame:
    """The same series with a value at each step that any of them has, so that they can be stacked."""
    wide = table.pivot_table(index="step", columns="metric", values="value")
    filled = wide.interpolate(limit_area="inside").fillna(0.0).reset_index()
    stacked = filled.melt(id_vars="step", var_name="metric", value_name="value")
    labels = dict(zip(table["metric"], table["label"], strict=True))
    return stacked.assign(
        x=stacked["step"].astype("float64"), label=stacked["metric"].map(labels), smooth=stacked["value"], alone=False
    )[list(COLUMNS)]


def positions(metrics: Metrics, name: str, axis: XAxis, completions_per_step: int) -> NDArray[np.float64]:
    """Where each point of the series `name` lies on the axis.

    A training step s ends when s + 1 steps are done; an evaluation at step k is made when k steps are done. Samples are
    completions, tokens are `num_tokens`, time is the sum of `step_time` in seconds.
    """
    steps = np.asarray(metrics.series[name].step, dtype=np.float64)
    if axis == "step":
        return steps
    done = steps if name.startswith("eval/") else steps + 1
    if axis == "samples":
        return done * completions_per_step
    if axis == "tokens":
        tokens = metrics.series.get("num_tokens")
        return _at(done, tokens.step, _known(tokens)) if tokens else np.full_like(done, np.nan)
    seconds = metrics.series.get("step_time")
    return _at(done, seconds.step, _accumulated(seconds)) if seconds else np.full_like(done, np.nan)


def _known(series: Series) -> NDArray[np.float64]:
    """The values, with gaps filled from their neighbours."""
    filled = pd.Series(series.value, dtype="float64").interpolate(limit_direction="both")
    return np.asarray(filled, dtype=np.float64)


def _accumulated(series: Series) -> NDArray[np.float64]:
    """The sum of a value per step up to and with each step; a thinned series stands for the steps it left out."""
    gaps = np.diff(np.asarray(series.step, dtype=np.float64), prepend=-1.0)
    return np.cumsum(_known(series) * gaps)


def _at(done: NDArray[np.float64], steps: Sequence[int], totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """The total when `done` steps are done; it starts at 0."""
    if not len(steps):
        return np.full_like(done, np.nan)
    known = np.interp(done, np.concatenate([[0.0], np.asarray(steps) + 1.0]), np.concatenate([[0.0], totals]))
    return np.asarray(known, dtype=np.float64)


def steps_within(
    metrics: Metrics, axis: XAxis, ends: tuple[float, float], completions_per_step: int
) -> tuple[int, int] | None:
    """The steps whose points lie between two places on the axis, widened to whole steps; None where nothing is known."""
    name = max(metrics.series, key=lambda one: len(metrics.series[one].step), default=None)
    if name is None or not metrics.series[name].step:
        return None
    places = positions(metrics, name, axis, completions_per_step)
    if np.isnan(places).any():  # the totals that place its points are not there yet
        return None
    first, last = np.interp(ends, places, np.asarray(metrics.series[name].step, dtype=np.float64))
    return math.floor(first), math.ceil(last)


def refined(coarse: Metrics, fine: Metrics, within: tuple[int, int], keep: Collection[str] = TOTALS) -> Metrics:
    """The coarse series with the fine ones in place of what they have at these steps, both ends included.

    Those in `keep` stay as they are. The totals that place points on the axis are sums from the start: finer in one part, they
    would move the points of all others.
    """
    first, last = within
    series = dict(coarse.series)
    for name, part in fine.series.items():
        if name in keep or name not in series:
            continue
        outside = [
            point for point in zip(series[name].step, series[name].value, strict=True) if not first <= point[0] <= last
        ]
        points = sorted([*outside, *zip(part.step, part.value, strict=True)], key=lambda point: point[0])
        series[name] = Series(step=[step for step, _ in points], value=[value for _, value in points])
    return Metrics(run_id=coarse.run_id, series=series)
