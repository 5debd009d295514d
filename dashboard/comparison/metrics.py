"""The series of the compared runs: few points of whole runs, and finer ones within a zoom."""

from collections.abc import Mapping, Sequence

import streamlit as st

from backend.contract.protocol import EVALUATION
from backend.contract.records import TERMINAL, Metrics, Run, Series
from dashboard.charts.comparison import View
from dashboard.charts.series import TOTALS, refined, steps_within, stretches_of
from dashboard.session import client
from dashboard.stored import completions_per_step

AT_ONCE = 20  # runs whose series one request answers
_DRAWN = 1800  # points of one chart, over all its lines: what a browser draws in a moment
_LEAST, _MOST = 90, 400  # of one line
# steps of a line that are always drawn one by one: smoothing means of two would be seen in so short a line
_WHOLE = 250
_EXACT = 60_000  # steps of all runs, up to which each step's total is read: evaluations lie within stretches

Steps = tuple[int, int]
Found = dict[int, Metrics]


def fetch(runs: Sequence[Run], names: Sequence[str], view: View) -> Found:
    """The series that the charts draw: in stretches that all runs share, with narrower ones within the zoom."""
    points = points_of(len(runs) if view.by_run else 1)
    steps = max(run.progress.step for run in runs)
    width = width_of(steps, points)
    found = _series(runs, names, width)
    if totals := TOTALS[view.axis]:  # which place points along the axis: at every step, unless these are too many
        every = sum(run.progress.step for run in runs) <= _EXACT
        for run_id, metrics in _series(runs, totals, 1 if every else width_of(steps, _MOST)).items():
            found[run_id] = Metrics(run_id=run_id, series={**found[run_id].series, **metrics.series})
    if view.zoom is None or width == 1:
        return found
    parts = [
        part
        for run in runs
        if (part := steps_within(found[run.id], view.axis, view.zoom, completions_per_step(run.config))) is not None
    ]
    if not parts:
        return found
    first = min(first for first, _ in parts) // width * width  # whole stretches
    last = max(last for _, last in parts) // width * width + width - 1
    return _refine(found, runs, names, (first, last), width_of(last - first + 1, points), keep=totals)


def shared_steps(runs: Sequence[Run]) -> dict[int, int]:
    """Of each fork, how many of its first steps are those of a run before it in the list."""
    if not any(run.forked_at is not None for run in runs):
        return {}
    known = client().lineage(runs=[run.id for run in runs]).items
    found: dict[int, int] = {}
    for place, one in enumerate(known):
        common = max((one.shared_with(other) for other in known[:place]), default=0)
        if common:
            found[one.run_id] = common
    return found


def points_of(lines: int) -> int:
    """The most points that each of a chart's lines may have; there are few lines of groups."""
    return max(_LEAST, min(_MOST, _DRAWN // lines))


def width_of(steps: int, points: int) -> int:
    """The smallest power of two that divides the steps into at most the given number of stretches; 1 for a short run."""
    return 1 if steps <= _WHOLE else 1 << (max(0, -(-steps // points) - 1)).bit_length()


def with_whole_ends(found: Mapping[int, Metrics], runs: Sequence[Run], names: Sequence[str], tail: int) -> Found:
    """The same series, with each of the last `tail` values of every run. Evaluations have all values already."""
    whole = dict(found)
    names = [name for name in names if not name.startswith(EVALUATION)]
    ends: dict[Steps, tuple[dict[int, Run], set[str]]] = {}
    for run in runs:
        for name in names:
            series = found[run.id].series.get(name)
            if series is not None and series.stretches is not None and series.step:
                same, of_them = ends.setdefault((_begins(series, tail), series.step[-1]), ({}, set()))
                same[run.id] = run
                of_them.add(name)
    for end, (same, of_them) in ends.items():
        whole |= _refine(whole, list(same.values()), sorted(of_them), end, 1)
    return whole


def _begins(series: Series, tail: int) -> int:
    """The latest step from which on the series is sure to have `tail` values; its first if it has fewer."""
    of, lacking = stretches_of(series), tail
    for start, step, finite in zip(of.start[::-1], series.step[::-1], of.finite[::-1], strict=True):
        if finite >= lacking:
            logged_at_each = finite == step - start + 1
            return step - lacking + 1 if logged_at_each else start
        lacking -= finite
    return of.start[0]


def _refine(
    found: Mapping[int, Metrics],
    runs: Sequence[Run],
    names: Sequence[str],
    within: Steps,
    width: int,
    keep: Sequence[str] = (),
) -> Found:
    fine = _series(runs, names, width, within)
    return {**found, **{run.id: refined(found[run.id], fine[run.id], within, keep) for run in runs}}


def _series(runs: Sequence[Run], names: Sequence[str], width: int, within: Steps | None = None) -> Found:
    """The series of each run; those of an attempt that has ended are fetched once."""
    ended = tuple((run.id, run.attempt) for run in runs if run.status in TERMINAL)
    moving = tuple((run.id, run.attempt) for run in runs if run.status not in TERMINAL and run.attempt)
    names = tuple(dict.fromkeys(names))
    found = [*_ask_once(ended, names, width, within), *_ask(moving, names, width, within)]
    return {run.id: Metrics(run_id=run.id, series={}) for run in runs} | {each.run_id: each for each in found}


def _ask(
    attempts: tuple[tuple[int, int], ...], names: tuple[str, ...], width: int, within: Steps | None
) -> list[Metrics]:
    first, last = within or (None, None)
    run_ids = [run_id for run_id, _ in attempts]
    return [
        metrics
        for start in range(0, len(run_ids), AT_ONCE)
        for metrics in client()
        .compare_metrics(runs=run_ids[start : start + AT_ONCE], names=names, from_step=first, to_step=last, width=width)
        .items
    ]


_ask_once = st.cache_data(ttl=600, max_entries=24, show_spinner=False)(_ask)
