"""Each run by itself: one line each, and what each came to."""

import pandas as pd
import streamlit as st

from backend.contract.records import TERMINAL, Run
from dashboard.charts.comparison import FEW, Line, comparison_figure, outcome
from dashboard.charts.palette import run_colours
from dashboard.comparison.chosen import label
from dashboard.comparison.controls import Controls, draw_charts, logged_by
from dashboard.comparison.judgement import Judgement, choose_judgement, in_rank, show_table
from dashboard.comparison.legend import HINT, Entry, choose_front
from dashboard.comparison.metrics import Found, fetch, with_whole_ends
from dashboard.components.stored import completions_per_step
from dashboard.format import count, number
from dashboard.session import guard
from dashboard.status import look


def show_alone(runs: list[Run], controls: Controls) -> None:
    """Legend, charts and the table."""
    charts = st.container()
    st.subheader("What they came to", anchor=False)
    judged = choose_judgement(controls.names, runs)
    names = (*controls.names, judged.name)  # the runs may be judged by what no chart shows
    with guard():
        found = fetch(runs, names, controls.view, alone=True)
        whole = with_whole_ends(found, runs, names, judged.tail)
    with charts:
        _show_charts(runs, found, controls)
    _show_outcomes(runs, whole, controls, judged)


def _show_charts(runs: list[Run], found: Found, controls: Controls) -> None:
    """The legend and a line for each run."""
    colours = run_colours([run.id for run in runs])
    front = choose_front(
        [Entry(run.id, label(run), colours[run.id], note=_note(run)) for run in runs],
        frozenset(run.id for run in runs),
    )
    thinned = any(series.stretches is not None for run in runs for series in found[run.id].series.values())
    bands = (
        f" Lines are means of stretches of steps{', faint bands their lowest to highest' if len(runs) <= FEW else ''}."
    )
    st.caption(f"{HINT}{bands if thinned else ''}")
    lines = [
        Line(label(run), colours[run.id], found[run.id], completions_per_step(run.config), run.id in front)
        for run in runs
    ]
    draw_charts(controls, logged_by(runs, label), lambda name: comparison_figure(name, lines, controls.view))


def _note(run: Run) -> str:
    """What the line does not say: a run that has finished is all there."""
    steps = f"{count(run.progress.step)} of {count(run.progress.total_steps)}"
    return "" if run.status == "finished" else f"{look(run).word}, {steps}" if run.attempt else look(run).word


def _show_outcomes(runs: list[Run], found: Found, controls: Controls, judged: Judgement) -> None:
    outcomes = {run.id: outcome(judged.name, found[run.id].series, judged.tail) for run in runs}
    ranked = in_rank(runs, lambda run: outcomes[run.id].final, judged)
    rows = [
        {
            "run": label(run),
            "final": number(outcomes[run.id].final),
            "best": number(outcomes[run.id].best),
            "at step": count(outcomes[run.id].best_step),
            **{
                judged.title(name): number(outcome(name, found[run.id].series, judged.tail).final)
                for name in controls.names
                if name != judged.name
            },
            "state": look(run).word,
            "open": f"/run?id={run.id}",
        }
        for run in ranked
    ]
    show_table(pd.DataFrame(rows), key="outcomes", words=("run", "state"))
    unfinished = "" if all(run.status in TERMINAL for run in runs) else " A run that goes on stands where it is now."
    st.caption(f"{judged.words}{unfinished}")
