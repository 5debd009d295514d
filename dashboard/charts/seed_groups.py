"""Runs that differ only in their seed, taken together: what a setting does, apart from luck."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import pandas as pd

from backend.contract.records import Metrics, Series
from dashboard.charts.comparison import Outcome, outcome
from dashboard.charts.interval import Estimate, estimate, t_quantile
from dashboard.charts.series import XAxis, positions, smooth

SUCCESS = "eval/pass@1"
BUCKETS = 1000  # more steps than this are drawn as means of neighbours: long series come thinned, each at other steps
COLUMNS = ("step", "x", "label", "metric", "mean", "low", "high", "n")
# Eight colours that colour-blind people tell apart, readable on light and dark (after Okabe and Ito).
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#a89f20", "#8f6fc9")


@dataclass(frozen=True)
class Member:
    """One run of a group; only one that has finished says what the setting comes to."""

    seed: int
    finished: bool
    metrics: Metrics
    completions_per_step: int


@dataclass(frozen=True)
class Group:
    """The runs of one setting; `label` is unique among the groups, `place` counts them."""

    label: str
    place: int
    members: tuple[Member, ...]

    @property
    def colour(self) -> str:
        """The second eight groups have the colours of the first, with dashed lines."""
        return COLOURS[self.place % len(COLOURS)]

    @property
    def dashed(self) -> bool:
        """Whether its lines are dashed."""
        return self.place // len(COLOURS) % 2 == 1

    def finals(self, name: str, which: Callable[[Outcome], float | None]) -> dict[int, float]:
        """Seed -> what a metric came to in its finished runs; the mean where several have one seed."""
        found: dict[int, list[float]] = {}
        for member in self.members:
            value = which(outcome(name, member.metrics.series)) if member.finished else None
            if value is not None:
                found.setdefault(member.seed, []).append(value)
        return {seed: fmean(values) for seed, values in found.items()}


def last(group: Group, name: str) -> dict[int, float]:
    """Seed -> the last value."""
    return group.finals(name, lambda one: one.last)


def best(group: Group, name: str) -> dict[int, float]:
    """Seed -> the best value, where more or less is better."""
    return group.finals(name, lambda one: one.best)


def gain(group: Group, name: str = SUCCESS) -> Estimate | None:
    """Last minus first value, each run against its own start."""
    ended = [known(member.metrics.series[name]) for member in group.members if _has(member, name) and member.finished]
    return estimate([values[-1] - values[0] for values in ended if len(values) > 1])


def by_gain(groups: Sequence[Group]) -> list[Group]:
    """The largest gain first; those without one last, in their order."""
    gains = {group.label: gain(group) for group in groups}

    def rank(group: Group) -> float:
        found = gains[group.label]
        return -found.mean if found else float("inf")

    return sorted(groups, key=rank)


def known(series: Series) -> list[float]:
    """The finite values."""
    return [value for value in series.value if value is not None]


def band(group: Group, name: str, *, axis: XAxis, weight: float, steps: int) -> pd.DataFrame:
    """Mean and 95 % interval over the group's runs at each step, of series smoothed one by one.

    A step counts where at least two runs have a value (one, if only one has any); a single value has no interval.
    """
    width = 1 + (steps - 1) // BUCKETS if steps > BUCKETS else 1
    parts = [_points(member, name, axis, weight, width) for member in group.members if _has(member, name)]
    parts = [part for part in parts if len(part)]
    if not parts:
        return pd.DataFrame(columns=list(COLUMNS))
    each = pd.concat(parts).groupby("step")
    table = pd.DataFrame({"x": each["x"].mean(), "mean": each["value"].mean(), "n": each["value"].count()})
    half = (
        each["value"].std() * table["n"].map(lambda n: t_quantile(n - 1) if n > 1 else float("nan")) / table["n"] ** 0.5
    )
    table = table.assign(low=table["mean"] - half, high=table["mean"] + half, label=group.label, metric=name)
    return table[table["n"] >= min(2, len(parts))].reset_index()[list(COLUMNS)]


def _points(member: Member, name: str, axis: XAxis, weight: float, width: int) -> pd.DataFrame:
    """One run: one row for each step, or for each `width` of them, where it has a value."""
    series = member.metrics.series[name]
    table = pd.DataFrame(
        {
            "step": pd.Series(series.step, dtype="int64") // width * width,
            "x": positions(member.metrics, name, axis, member.completions_per_step),
            "value": pd.Series(smooth(series.value, weight), dtype="float64"),
        }
    )
    return table.dropna().groupby("step", as_index=False).mean()


def _has(member: Member, name: str) -> bool:
    return name in member.metrics.series


def grouped(labels: Mapping[int, str]) -> dict[str, list[int]]:
    """Run ids by their label, in the order in which the labels first appear."""
    groups: dict[str, list[int]] = {}
    for run_id, label in labels.items():
        groups.setdefault(label, []).append(run_id)
    return groups
