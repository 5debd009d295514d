"""Metric series as tables that charts draw: smoothed, placed along an axis, with what each point stands for."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from backend.contract.records import Metrics, Series, Stretches

COLUMNS = ("step", "x", "metric", "label", "value", "smooth", "alone")
BAND = ("start", "low", "high", "finite", "missing")  # of thinned series beside them
XAxis = Literal["step", "samples", "tokens", "time"]
# from these comes where a point lies on an axis; a step that replaced no group logs no frac_filtered
TOTALS: Mapping[XAxis, tuple[str, ...]] = {
    "step": (),
    "samples": ("num_samples", "frac_filtered"),
    "tokens": ("num_tokens",),
    "time": ("step_time",),
}
Floats = NDArray[np.float64]


def smooth(values: Sequence[float | None], weight: float, finite: Iterable[int] | None = None) -> list[float | None]:
    """Exponential moving average without the bias of its start; missing values stay missing and move nothing.

    `weight` is the share of the past, from 0 (as it is) to below 1. A value that is the mean of `finite` steps comes out as the
    mean of the average at each of these steps, as if each had had that value.
    """
    smoothed: list[float | None] = []
    level = mass = 0.0
    low, high = math.inf, -math.inf
    for value, n in zip(values, repeat(1) if finite is None else finite, strict=False):
        if value is None:
            smoothed.append(None)
            continue
        kept = weight**n  # of the level, at the last step
        mean = weight * (1 - kept) / ((1 - weight) * n)  # of the level, over the steps
        low, high = min(low, value), max(high, value)  # no average is beyond its values, as rounding would have it
        smoothed.append(min(high, max(low, (mean * level + (1 - mean) * value) / (mean * mass + (1 - mean)))))
        level = kept * level + (1 - kept) * value
        mass = kept * mass + (1 - kept)
    return smoothed


def stretches_of(series: Series) -> Stretches:
    """The steps that each point stands for; without thinning, only its own."""
    if series.stretches is not None:
        return series.stretches
    known = [value is not None for value in series.value]
    steps = [step if there else None for step, there in zip(series.step, known, strict=True)]
    return Stretches.model_construct(
        width=1,
        start=series.step,
        finite=[int(there) for there in known],
        missing=[int(not there) for there in known],
        low_step=steps,
        low=series.value,
        high_step=steps,
        high=series.value,
    )


def long_table(series: Mapping[str, Series], labels: Mapping[str, str], weight: float) -> pd.DataFrame:
    """The series named in `labels`, one row for each point, with the label that the legend shows."""
    return with_gaps(
        table_of([(name, label, series[name]) for name, label in labels.items() if name in series], weight)
    )


def table_of(lines: Sequence[tuple[str, str, Series]], weight: float) -> pd.DataFrame:
    """Lines below each other, each a metric, a label and its series; smoothed one by one. One table is made, not one for each line.

    Where one of them is thinned, with the columns of BAND.
    """
    counts = [len(series.step) for _, _, series in lines]
    steps = np.array([step for _, _, series in lines for step in series.step], dtype=np.int64)
    stretches = [stretches_of(series) for _, _, series in lines]
    smoothed = [
        value
        for (_, _, series), of in zip(lines, stretches, strict=True)
        for value in smooth(series.value, weight, of.finite)
    ]
    columns = {
        "step": steps,
        "x": steps.astype(np.float64),
        "metric": pd.Series(np.repeat([name for name, _, _ in lines], counts), dtype="str"),
        "label": pd.Series(np.repeat([label for _, label, _ in lines], counts), dtype="str"),
        "value": np.array([value for _, _, series in lines for value in series.value], dtype=np.float64),
        "smooth": np.array(smoothed, dtype=np.float64),
        "alone": False,
    }
    if any(series.stretches is not None for _, _, series in lines):
        for name in BAND:
            kind = np.float64 if name in ("low", "high") else np.int64
            columns[name] = np.array([value for of in stretches for value in getattr(of, name)], dtype=kind)
    return pd.DataFrame(columns)


def with_gaps(table: pd.DataFrame) -> pd.DataFrame:
    """Add a row without a value after each stretch with missing values; a point between two gaps is `alone`, a dot."""
    if "missing" in table:
        after = table[(table["missing"] > 0) & table["value"].notna()]
        gaps = after.assign(value=np.nan, smooth=np.nan, low=np.nan, high=np.nan)
        table = pd.concat([table, gaps]).sort_index(kind="stable").reset_index(drop=True) if len(gaps) else table
    known = table["value"].notna()

    def joins(places: int) -> pd.Series:
        same = (table["label"] == table["label"].shift(places)) & (table["metric"] == table["metric"].shift(places))
        return same & known.shift(places, fill_value=False)

    return table.assign(alone=known & ~joins(1) & ~joins(-1))


def touchable(table: pd.DataFrame, most: int) -> pd.DataFrame:
    """With the column `touch`: the points that a pointer finds, about `most` at the most, evenly along each line, its ends among them.

    The browser keeps two shapes and a text for each of them, and of a line's other points none: that is most of what a chart costs.
    """
    lines = table.groupby("label")["x"]
    place, count = lines.cumcount(), lines.transform("size")
    every = max(1, math.ceil(len(table) / most))
    return table.assign(touch=(place % every == 0) | (place == count - 1))


def on_common_steps(table: pd.DataFrame) -> pd.DataFrame:
    """The same series with a value at each step that any of them has, so that they can be stacked; of thinned ones with its `start`."""
    wide = table.pivot_table(index="step", columns="metric", values="value")
    filled = wide.interpolate(limit_area="inside").fillna(0.0).reset_index()
    stacked = filled.melt(id_vars="step", var_name="metric", value_name="value")
    labels = dict(zip(table["metric"], table["label"], strict=True))
    stacked = stacked.assign(
        x=stacked["step"].astype("float64"), label=stacked["metric"].map(labels), smooth=stacked["value"], alone=False
    )[list(COLUMNS)]
    if "start" not in table:
        return stacked
    return stacked.assign(start=stacked["step"].map(table.groupby("step")["start"].min()))


class _Row(NamedTuple):
    """A point of a series with what it stands for."""

    step: int
    value: float | None
    start: int
    finite: int
    missing: int
    low_step: int | None
    low: float | None
    high_step: int | None
    high: float | None

    def before(self, later: Sequence["_Row"]) -> "_Row":
        """The row without the steps of `later`, which are its end; its extremes stay."""
        if not later:
            return self
        finite = self.finite - sum(row.finite for row in later)
        rest = (self.value or 0.0) * self.finite - sum((row.value or 0.0) * row.finite for row in later)
        return self._replace(
            step=later[0].start - 1,
            value=rest / finite if finite > 0 else None,
            finite=max(0, finite),
            missing=self.missing - sum(row.missing for row in later),
        )


def _rows(series: Series) -> list[_Row]:
    of = stretches_of(series)
    columns = (of.start, of.finite, of.missing, of.low_step, of.low, of.high_step, of.high)
    return list(map(_Row, series.step, series.value, *columns))


def refined(coarse: Metrics, fine: Metrics, within: tuple[int, int], keep: Collection[str] = ()) -> Metrics:
    """The coarse series, replaced by the fine ones at these steps, both ends included.

    A coarse stretch that begins earlier keeps its earlier steps; none goes on beyond the end. Those in `keep` stay as they are.
    """
    first, last = within
    series = dict(coarse.series)
    for name, part in fine.series.items():
        if name in keep or name not in series or not part.step:
            continue
        inner = _rows(part)
        rows = []
        for row in _rows(series[name]):
            if row.step < first or row.start > last:
                rows.append(row)
            elif row.start < first:
                rows.append(row.before([one for one in inner if one.step <= row.step]))
        rows = sorted([*rows, *inner], key=lambda row: row.step)
        step, value, *of = (list(column) for column in zip(*rows, strict=True))
        width = stretches_of(series[name]).width  # of 1 where each row is one value
        stretches = Stretches.model_validate({"width": width} | dict(zip(_Row._fields[2:], of, strict=True)))
        series[name] = Series(step=step, value=value, stretches=stretches if width > 1 else None)
    return Metrics(run_id=coarse.run_id, series=series)


def positions(metrics: Metrics, name: str, axis: XAxis, completions_per_step: float) -> Floats:
    """Where each point of the series `name` lies on the axis: where its last step ends.

    A training step s ends when s + 1 steps are done; an evaluation at step k is made when k steps are done. Samples are
    completions, including those that dynamic sampling filtered; tokens are `num_tokens`, time is the sum of `step_time` in seconds.
    """
    steps = np.asarray(metrics.series[name].step, dtype=np.float64)
    if axis == "step":
        return steps
    done = steps if name.startswith("eval/") else steps + 1
    if axis == "samples":
        return _samples(metrics.series, done, completions_per_step)
    (total,) = TOTALS[axis]
    if total not in metrics.series:
        return np.full_like(done, np.nan)
    return _at(done, metrics.series[total], _accumulated if axis == "time" else _counted)


def has_axis(metrics: Metrics, axis: XAxis, completions_per_step: float) -> bool:
    """Whether a run logged what places its points along the axis."""
    return (
        (axis == "samples" and not math.isnan(completions_per_step))
        or not TOTALS[axis]
        or TOTALS[axis][0] in metrics.series
    )


def _samples(series: Mapping[str, Series], done: Floats, completions_per_step: float) -> Floats:
    """The completions sampled in `done` steps: as counted, and before anything was counted from the share of groups taken out."""
    samples = done * completions_per_step
    if (filtered := series.get("frac_filtered")) is not None and filtered.step:
        gone = np.array([0.0 if share is None or share >= 1 else share / (1 - share) for share in filtered.value])
        of = stretches_of(filtered)
        more = np.cumsum(gone * of.finite) * completions_per_step
        places = np.column_stack([of.start, np.asarray(filtered.step) + 1]).ravel()
        samples += np.rint(np.interp(done, places, np.column_stack([np.concatenate([[0.0], more[:-1]]), more]).ravel()))
    if (counted := series.get("num_samples")) is not None and counted.step:
        samples = np.where(done > counted.step[0], _at(done, counted, _counted), samples)
    return samples


def _known(values: Sequence[float | None]) -> Floats:
    """The values, with gaps filled from their neighbours."""
    filled = pd.Series(list(values), dtype="float64").interpolate(limit_direction="both")
    return np.asarray(filled, dtype=np.float64)


def _counted(series: Series) -> Floats:
    """A count that only grows, at each point's last step: the highest of its values."""
    return _known(stretches_of(series).high)


def _accumulated(series: Series) -> Floats:
    """The sum of a value per step up to and with each point's last step; a mean stands for all of its steps."""
    gaps = np.diff(np.asarray(series.step, dtype=np.float64), prepend=-1.0)
    return np.cumsum(_known(series.value) * gaps)


def _at(done: Floats, series: Series, totals: Callable[[Series], Floats]) -> Floats:
    """The total when `done` steps are done; it starts at 0."""
    if not series.step:
        return np.full_like(done, np.nan)
    ends = np.concatenate([[0.0], np.asarray(series.step) + 1.0])
    return np.asarray(np.interp(done, ends, np.concatenate([[0.0], totals(series)])), dtype=np.float64)


def steps_within(
    metrics: Metrics, axis: XAxis, ends: tuple[float, float], completions_per_step: float
) -> tuple[int, int] | None:
    """The steps whose points lie between two places on the axis, widened to whole steps; None if nothing is known."""
    name = max(metrics.series, key=lambda one: len(metrics.series[one].step), default=None)
    if name is None or not metrics.series[name].step:
        return None
    places = positions(metrics, name, axis, completions_per_step)
    if np.isnan(places).any():  # the totals that place its points are not there yet
        return None
    first, last = np.interp(ends, places, np.asarray(metrics.series[name].step, dtype=np.float64))
    return math.floor(first), math.ceil(last)
