"""Runs that differ only in their seed, taken together: what a setting does, apart from luck."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import pandas as pd

from backend.contract.records import Metrics, Series
from dashboard.charts.comparison import View, outcome
from dashboard.charts.interval import Estimate, estimate, t_quantile
from dashboard.charts.places import positions
from dashboard.charts.series import smooth, stretches_of

SUCCESS = "eval/pass@1"
COLUMNS = ("start", "step", "x", "label", "metric", "mean", "low", "high", "least", "most", "n")
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

    @property
    def seeds(self) -> frozenset[int]:
        """The seeds of its runs."""
        return frozenset(member.seed for member in self.members)

    def by_seed(self, which: Callable[[Member], float | None]) -> dict[int, float]:
        """Seed -> a number of its finished runs; the mean if several have one seed, since they are one draw of luck."""
        found: dict[int, list[float]] = {}
        for member in self.members:
            value = which(member) if member.finished else None
            if value is not None:
                found.setdefault(member.seed, []).append(value)
        return {seed: fmean(values) for seed, values in found.items()}


def final(group: Group, name: str, tail: int) -> dict[int, float]:
    """Seed -> the mean of the last `tail` values, of an evaluation the last value."""
    return group.by_seed(lambda member: outcome(name, member.metrics.series, tail).final)


def best(group: Group, name: str) -> dict[int, float]:
    """Seed -> the best value, where more or less is better."""
    return group.by_seed(lambda member: outcome(name, member.metrics.series, tail=1).best)


def gain(group: Group, name: str = SUCCESS) -> Estimate | None:
    """Last minus first value over the seeds, each run against its own start."""

    def gained(member: Member) -> float | None:
        values = known(member.metrics.series[name]) if _has(member, name) else []
        return values[-1] - values[0] if len(values) > 1 else None

    return estimate(list(group.by_seed(gained).values()))


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


def band(group: Group, name: str, view: View) -> pd.DataFrame:
    """Mean and 95 % interval over the group's seeds at each stretch of steps, of series smoothed one by one.

    Runs of one seed count once, by their mean. A stretch counts if at least two seeds have a value (one, if only one has any); a
    single value has no interval. `least` and `most` are the ends of the values, `step` is the last step that a run has logged.
    """
    parts = [_points(member, name, view) for member in group.members if _has(member, name)]
    parts = [part for part in parts if len(part)]
    if not parts:
        return pd.DataFrame(columns=list(COLUMNS))
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
    return shown[shown["n"] >= min(2, seeds["seed"].nunique())].reset_index()[list(COLUMNS)]


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


def _has(member: Member, name: str) -> bool:
    return name in member.metrics.series


def grouped(labels: Mapping[int, str]) -> dict[str, list[int]]:
    """Run ids by their label, in the order in which the labels first appear."""
    groups: dict[str, list[int]] = {}
    for run_id, label in labels.items():
        groups.setdefault(label, []).append(run_id)
    return groups
