"""Several runs beside each other: which is better, is it luck, and what they differ in."""

import streamlit as st

from backend.contract.common_ground import seeded
from backend.contract.records import TERMINAL, Metrics, Run
from dashboard.comparison.alone import show_alone
from dashboard.comparison.chosen import Chosen, choose, runs_of, show_progress, show_sweep, show_sweeps
from dashboard.comparison.controls import Controls, show_controls, show_highlights
from dashboard.comparison.differing import show_differences
from dashboard.comparison.groups import groups_of, show_groups
from dashboard.comparison.settings import ALONE, setting
from dashboard.session import client, guard, link

POINTS = 1000
AT_ONCE = 20  # runs whose series one request answers
TICK = 4.0  # seconds between two looks while a run moves


def main() -> None:
    """Choose, look, read."""
    chosen = choose()
    if chosen.sweep is not None:
        show_sweep(chosen.sweep)
    if not chosen.runs:
        show_empty(chosen)
        return
    controls = show_controls(chosen.runs, sweep=chosen.sweep is not None)
    labels = list(dict.fromkeys(setting(run, controls.by) for run in chosen.runs)) if controls.by != ALONE else []
    highlighted = show_highlights(labels) if len(labels) > 1 else []
    st.fragment(show_comparison, run_every=TICK if chosen.moving else None)(chosen, controls, highlighted)


def show_empty(chosen: Chosen) -> None:
    """What will appear here, and how to make it appear."""
    if chosen.sweep is not None:
        st.info("All runs of this sweep were deleted.", icon=":material/delete:")
        return
    st.info(
        "Choose two runs or more: their curves appear on the same charts, with the fields in which they differ and what "
        "each came to.",
        icon=":material/stacked_line_chart:",
    )
    with st.container(horizontal=True):
        link("runs", "All runs", icon=":material/list:")
        link("sweep", "Compare algorithms: a new sweep", icon=":material/add:")
    show_sweeps()


def show_comparison(chosen: Chosen, controls: Controls, highlighted: list[str]) -> None:
    """The runs as they are now: drawn again while one of them moves."""
    with guard():
        runs = [client().run(run.id) for run in chosen.runs] if chosen.sweep is None else runs_of(chosen.sweep.id)
        if not runs:
            st.rerun()
        metrics = fetch(runs, (*controls.names, "num_tokens", "step_time"))
    if chosen.sweep is not None:
        show_progress(chosen.sweep, runs)
    if controls.by == ALONE:
        show_alone(runs, metrics, controls)
    else:
        steps = max(run.progress.total_steps for run in runs)
        show_groups(groups_of(runs, metrics, controls.by), highlighted, controls, steps)
        show_differences({setting(run, controls.by): seeded(run.config, 0) for run in runs})
    if chosen.moving and all(run.status in TERMINAL for run in runs):
        st.rerun()  # nothing moves any more: no need to look again


def fetch(runs: list[Run], names: tuple[str, ...]) -> dict[int, Metrics]:
    """The series of the runs; those of an attempt that has ended are asked for once."""
    ended = tuple((run.id, run.attempt) for run in runs if run.status in TERMINAL)
    moving = tuple((run.id, run.attempt) for run in runs if run.status not in TERMINAL and run.attempt)
    found = {each.run_id: each for each in (*_fetch_ended(ended, names), *_fetch(moving, names))}
    return {run.id: found.get(run.id, Metrics(run_id=run.id, series={})) for run in runs}


def _fetch(attempts: tuple[tuple[int, int], ...], names: tuple[str, ...]) -> list[Metrics]:
    run_ids = [run_id for run_id, _ in attempts]
    return [
        metrics
        for start in range(0, len(run_ids), AT_ONCE)
        for metrics in client().compare_metrics(run_ids[start : start + AT_ONCE], names, max_points=POINTS)
    ]


_fetch_ended = st.cache_data(ttl=600, max_entries=16, show_spinner=False)(_fetch)


main()
