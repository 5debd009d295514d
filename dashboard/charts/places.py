"""Where the points of a series lie along steps, samples, tokens or wall time."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from backend.contract.records import Metrics, Series
from dashboard.charts.series import stretches_of

XAxis = Literal["step", "samples", "tokens", "time"]
# from these comes where a point lies on an axis; a step that replaced no group logs no frac_filtered
TOTALS: Mapping[XAxis, tuple[str, ...]] = {
    "step": (),
    "samples": ("num_samples", "frac_filtered"),
    "tokens": ("num_tokens",),
    "time": ("step_time",),
}
Floats = NDArray[np.float64]


def positions(metrics: Metrics, name: str, axis: XAxis, completions_per_step: int) -> Floats:
    """Where each point of the series `name` lies on the axis: where its last step ends.

    A training step s ends when s + 1 steps are done; an evaluation at step k is made when k steps are done. Samples are
    completions, those that dynamic sampling took out among them; tokens are `num_tokens`, time is the sum of `step_time` in seconds.
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


def _samples(series: Mapping[str, Series], done: Floats, completions_per_step: int) -> Floats:
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
    """What only grows, at each point's last step: the highest of its values."""
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
