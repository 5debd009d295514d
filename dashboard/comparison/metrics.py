"""The series of the compared runs: few points of all of them, and finer ones where somebody looks closer."""

from collections.abc import Collection, Mapping, Sequence

import streamlit as st

from backend.contract.protocol import EVALUATION
from backend.contract.records import TERMINAL, Metrics, Run
from dashboard.charts.comparison import View
from dashboard.charts.seed_groups import WHOLE
from dashboard.charts.series import TOTALS, refined, steps_within
from dashboard.components.stored import completions_per_step
from dashboard.session import client

AT_ONCE = 20  # runs whose series one request answers
_DRAWN = 1800  # points of one chart, over all its lines: what a browser draws in a moment
_LEAST, _MOST = 90, 400  # of one line

Steps = tuple[int, int]
Found = dict[int, Metrics]


def fetch(runs: Sequence[Run], names: Sequence[str], view: View, *, alone: bool) -> Found:
    """The series as the charts need them: thinned to what can be seen, finer within the zoom."""
    points = max(_LEAST, min(_MOST, _DRAWN // len(runs))) if alone else WHOLE
    found = _series(runs, (*names, *TOTALS), points)
    if view.zoom is None or not _thinned(runs, points):
        return found
    parts = [
        part
        for run in runs
        if (part := steps_within(found[run.id], view.axis, view.zoom, completions_per_step(run.config))) is not None
    ]
    if not parts:
        return found
    return _refine(found, runs, names, (min(first for first, _ in parts), max(last for _, last in parts)), points)


def with_whole_ends(found: Mapping[int, Metrics], runs: Sequence[Run], names: Sequence[str], tail: int) -> Found:
    """With every one of the last `tail` values of each run, also of one that goes on: the mean of a thinned series is that of extremes.

    Of an evaluation the last value counts alone, and a thinned series has that.
    """
    whole = dict(found)
    names = [name for name in names if not name.startswith(EVALUATION)]
    by_last: dict[int, list[Run]] = {}
    for run in runs:
        series = [found[run.id].series[name] for name in names if name in found[run.id].series]
        if any(_has_holes(one.step[-tail:]) for one in series):
            by_last.setdefault(max(one.step[-1] for one in series if one.step), []).append(run)
    for last, same in by_last.items():
        whole |= _refine(whole, same, names, (max(0, last - tail), last), WHOLE, keep=())
    return whole


def _has_holes(steps: Sequence[int]) -> bool:
    """Whether steps between the first and the last are missing."""
    return len(steps) > 0 and steps[-1] - steps[0] >= len(steps)


def _refine(
    found: Mapping[int, Metrics],
    runs: Sequence[Run],
    names: Sequence[str],
    within: Steps,
    points: int,
    keep: Collection[str] = TOTALS,
) -> Found:
    fine = _series(runs, tuple(names), points, within)
    return {**found, **{run.id: refined(found[run.id], fine[run.id], within, keep) for run in runs}}


def _thinned(runs: Sequence[Run], points: int) -> bool:
    return max(run.progress.total_steps for run in runs) > points


def _series(runs: Sequence[Run], names: tuple[str, ...], points: int, within: Steps | None = None) -> Found:
    """What each run has logged; what an attempt that has ended logged is asked for once."""
    ended = tuple((run.id, run.attempt) for run in runs if run.status in TERMINAL)
    moving = tuple((run.id, run.attempt) for run in runs if run.status not in TERMINAL and run.attempt)
    names = tuple(dict.fromkeys(names))
    found = [*_ask_once(ended, names, points, within), *_ask(moving, names, points, within)]
    return {run.id: Metrics(run_id=run.id, series={}) for run in runs} | {each.run_id: each for each in found}


def _ask(
    attempts: tuple[tuple[int, int], ...], names: tuple[str, ...], points: int, within: Steps | None
) -> list[Metrics]:
    first, last = within or (None, None)
    run_ids = [run_id for run_id, _ in attempts]
    return [
        metrics
        for start in range(0, len(run_ids), AT_ONCE)
        for metrics in client().compare_metrics(
            run_ids[start : start + AT_ONCE], names, from_step=first, to_step=last, max_points=points
        )
    ]


_ask_once = st.cache_data(ttl=600, max_entries=24, show_spinner=False)(_ask)
