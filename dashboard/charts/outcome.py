"""The results of runs, one by one or by setting, over its seeds: final and best values, and gains, also as a picture."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean
from typing import NamedTuple

import altair as alt
import pandas as pd

from backend.contract.protocol import EVALUATION
from backend.contract.records import Metrics, Series
from dashboard.charts.figure import Figure, Spec, canvas, colour, specification, tips
from dashboard.charts.interval import Estimate, estimate
from dashboard.charts.lines import PADDING
from dashboard.charts.meaning import meaning
from dashboard.charts.palette import NEUTRAL
from dashboard.charts.series import stretches_of

SUCCESS = "eval/pass@1"
SUCCESS_TITLE = f"Gain in {meaning(SUCCESS).title.lower()}"
ROW = 26  # pixels of a setting in the picture of the gains
AXIS_HEIGHT = 60  # and of the numbers and the title below them


class Stroke(NamedTuple):
    """How the line of a setting is drawn."""

    colour: str
    dashed: bool = False


@dataclass(frozen=True)
class Member:
    """One run of a setting. A setting counts only finished runs; a run on its own counts as far as it is."""

    seed: int
    counts: bool
    metrics: Metrics
    completions_per_step: float
    begins: int = 0  # the step from which its line is drawn: of a fork, what comes before is another line's


@dataclass(frozen=True)
class Group:
    """The runs that one line stands for: those of one setting, or a single run. `label` and `number` are unique among the groups."""

    label: str
    number: int
    stroke: Stroke
    members: tuple[Member, ...]

    @property
    def seeds(self) -> frozenset[int]:
        """The seeds of its runs."""
        return frozenset(member.seed for member in self.members)

    def by_seed(self, which: Callable[[Member], float | None]) -> dict[int, float]:
        """Seed -> a number of its runs that count; the mean if several have one seed, since they are one draw of luck."""
        found: dict[int, list[float]] = {}
        for member in self.members:
            value = which(member) if member.counts else None
            if value is not None:
                found.setdefault(member.seed, []).append(value)
        return {seed: fmean(values) for seed, values in found.items()}


@dataclass(frozen=True)
class Outcome:
    """The result of a metric: the mean of its last finite values, the best value and its step; None if there is no such value."""

    final: float | None
    best: float | None
    best_step: int | None


def outcome(name: str, series: Mapping[str, Series], tail: int) -> Outcome:
    """The metric's result: the mean of the last `tail` values, or the last evaluation; `best` only if more or less is better.

    The best of a thinned series is its best value, not its best mean.
    """
    if name not in series:
        return Outcome(None, None, None)
    of, better = stretches_of(series[name]), meaning(name).better
    best_step, best = _extreme(of.low_step, of.low, min) if better == "lower" else _extreme(of.high_step, of.high, max)
    wanted = 1 if name.startswith(EVALUATION) else tail
    total, lacking = 0.0, wanted
    for value, finite in zip(series[name].value[::-1], of.finite[::-1], strict=True):
        if value is not None and lacking:
            count = min(finite, lacking)  # a stretch of which only some are wanted counts with its mean
            total, lacking = total + value * count, lacking - count
    last = total / (wanted - lacking) if lacking < wanted else None
    return Outcome(last, *((best, best_step) if better else (None, None)))


def _extreme(
    steps: Sequence[int | None], values: Sequence[float | None], which: Callable[..., tuple[int, float]]
) -> tuple[int | None, float | None]:
    known = [(step, value) for step, value in zip(steps, values, strict=True) if step is not None and value is not None]
    return which(known, key=lambda point: point[1]) if known else (None, None)


def final(group: Group, name: str, tail: int) -> dict[int, float]:
    """Seed -> the mean of the last `tail` values, or the last evaluation."""
    return group.by_seed(lambda member: outcome(name, member.metrics.series, tail).final)


def best(group: Group, name: str) -> dict[int, float]:
    """Seed -> the best value, if more or less is better."""
    return group.by_seed(lambda member: outcome(name, member.metrics.series, tail=1).best)


def gain(group: Group, name: str = SUCCESS) -> Estimate | None:
    """Last minus first value over the seeds, each run against its own start."""

    def gained(member: Member) -> float | None:
        series = member.metrics.series.get(name)
        values = [value for value in series.value if value is not None] if series else []
        return values[-1] - values[0] if len(values) > 1 else None

    return estimate(list(group.by_seed(gained).values()))


def by_gain(groups: Sequence[Group]) -> list[Group]:
    """The largest gain first; those without one last, in their order."""
    gains = {group.label: gain(group) for group in groups}
    return sorted(groups, key=lambda group: -found.mean if (found := gains[group.label]) else math.inf)


def gain_figure(groups: Sequence[Group], front: Collection[int]) -> Figure:
    """What each setting gained in held-out success: a dot with its 95 % interval, the largest on top."""
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
    look = tuple((group.label, group.stroke.colour if group.number in front else NEUTRAL) for group in ranked)
    return Figure(_gain_spec(look), pd.DataFrame(rows))


@lru_cache(maxsize=256)
def _gain_spec(look: tuple[tuple[str, str], ...]) -> Spec:
    labels = [label for label, _ in look]
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
    base = canvas().encode(y=y, color=colour(dict(look), legend=False))
    rule = canvas().transform_aggregate(rows="count()").mark_rule(strokeDash=[4, 3], color=NEUTRAL)
    zero = rule.encode(x=alt.datum(0))
    intervals = base.mark_rule(strokeWidth=2.5).encode(x=alt.X("lower:Q"), x2="upper:Q")
    said = tips(("label:N", "setting"), ("mean:Q", "gain", ".3~f"), *estimated(".3~f"))
    dots = base.mark_point(filled=True, size=95, opacity=1).encode(x=x, tooltip=said)
    numbers = base.mark_text(align="left", dx=9, dy=-9, fontSize=11)
    values = numbers.encode(x="mean:Q", text=alt.Text("mean:Q", format="+.3f"))
    height = ROW * len(labels) + AXIS_HEIGHT
    return specification(alt.layer(zero, intervals, dots, values).properties(height=height, padding=PADDING))


def estimated(form: str) -> list[tuple[str, ...]]:
    """The tooltip of a mean over seeds: the ends of its interval in the format `form`, and the seeds."""
    return [("low:Q", "95 % from", form), ("high:Q", "to", form), ("n:Q", "seeds")]
