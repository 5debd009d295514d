"""Several runs on one chart, and what each came to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from backend.contract.records import Metrics, Series
from dashboard.charts.figure import Figure
from dashboard.charts.lines import Look, line_spec
from dashboard.charts.meaning import meaning
from dashboard.charts.series import COLUMNS, XAxis, long_table, positions

X_TITLES: dict[XAxis, str] = {
    "step": "step",
    "samples": "completions",
    "tokens": "tokens",
    "time": "seconds of training",
}
TAIL = 10  # the last values whose mean stands beside the last one


@dataclass(frozen=True)
class Line:
    """One run in a comparison; `label` is unique among them."""

    label: str
    colour: str
    metrics: Metrics
    completions_per_step: int


@dataclass(frozen=True)
class Outcome:
    """What a metric came to: its last finite value, the best and its step, the mean of the last ten. None where there is none."""

    last: float | None
    best: float | None
    best_step: int | None
    tail_mean: float | None


def comparison_figure(name: str, lines: Sequence[Line], *, axis: XAxis, weight: float, log: bool, steps: int) -> Figure:
    """The metric `name` of several runs, the longest of which has `steps` steps.

    On a log scale, what is not above 0 has no place and is left out.
    """
    evaluated = name.startswith("eval/")
    parts = [
        _placed(name, line, axis, 0.0 if evaluated else weight)
        for line in lines
        if line.metrics.series.get(name) is not None
    ]
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(COLUMNS))
    if log:
        table = table.assign(**{field: table[field].where(table[field] > 0) for field in ("value", "smooth")})
    look = Look(
        colours=tuple((line.label, line.colour) for line in lines),
        axis=meaning(name).axis,
        x_title=X_TITLES[axis],
        x_domain=(0, steps) if axis == "step" and steps else None,
        log=log,
        dots=evaluated,
        legend=False,
        height=260,
    )
    return Figure(line_spec(look), table)


def _placed(name: str, line: Line, axis: XAxis, weight: float) -> pd.DataFrame:
    table = long_table(line.metrics.series, {name: line.label}, weight)
    return table.assign(x=positions(line.metrics, name, axis, line.completions_per_step))


def outcome(name: str, series: Mapping[str, Series]) -> Outcome:
    """What the metric came to; best only where more or less is better."""
    known = (
        [(step, value) for step, value in zip(series[name].step, series[name].value, strict=True) if value is not None]
        if name in series
        else []
    )
    if not known:
        return Outcome(None, None, None, None)
    values = [value for _, value in known]
    better = meaning(name).better
    best_step, best = (
        (None, None) if better is None else (max if better == "higher" else min)(known, key=lambda point: point[1])
    )
    return Outcome(values[-1], best, best_step, sum(values[-TAIL:]) / len(values[-TAIL:]))
