"""Each run by itself: one line each, the fields in which they differ, and what each came to."""

import pandas as pd
import streamlit as st

from backend.contract.records import Metrics, Run
from dashboard.charts.comparison import Line, Outcome, comparison_figure, outcome
from dashboard.charts.group import swatch
from dashboard.charts.meaning import meaning
from dashboard.charts.palette import run_colours
from dashboard.comparison.chosen import label
from dashboard.comparison.controls import Controls
from dashboard.comparison.differing import show_differences
from dashboard.components.chart import heading, show
from dashboard.components.stored import completions_per_step
from dashboard.format import count, number
from dashboard.status import look


def show_alone(runs: list[Run], metrics: dict[int, Metrics], controls: Controls) -> None:
    """Legend, charts and tables."""
    lines = _lines(runs, metrics)
    _show_legend(runs)
    _show_charts(lines, controls, max(run.progress.total_steps for run in runs))
    show_differences({label(run): run.config for run in runs})
    _show_outcomes(controls.names, runs, lines)


def _lines(runs: list[Run], metrics: dict[int, Metrics]) -> list[Line]:
    colours = run_colours([run.id for run in runs])
    return [Line(label(run), colours[run.id], metrics[run.id], completions_per_step(run.config)) for run in runs]


def _show_legend(runs: list[Run]) -> None:
    """The runs with their colours: one legend for all charts."""
    colours = run_colours([run.id for run in runs])
    st.dataframe(
        pd.DataFrame(
            {
                "": [swatch(colours[run.id]) for run in runs],
                "run": [label(run) for run in runs],
                "state": [look(run).word for run in runs],
                "steps": [f"{count(run.progress.step)} of {count(run.progress.total_steps)}" for run in runs],
                "open": [f"/run?id={run.id}" for run in runs],
            }
        ),
        key="legend",
        hide_index=True,
        width="content",
        height="content" if len(runs) <= 6 else 250,
        column_config={
            "": st.column_config.ImageColumn("", width=50),
            "open": st.column_config.LinkColumn("", display_text="open", width=60),
        },
    )


def _show_charts(lines: list[Line], controls: Controls, steps: int) -> None:
    for place, name, about in controls.laid_out():
        with place:
            st.markdown(heading(about.title, about.unit), help=about.help)
            figure = comparison_figure(
                name, lines, axis=controls.axis, weight=controls.weight, log=controls.log, steps=steps
            )
            if figure.data.empty:
                st.caption("None of these runs has logged it yet.")
            show(figure, key=f"comparison-{name}", about=about.title)


def _show_outcomes(names: list[str], runs: list[Run], lines: list[Line]) -> None:
    st.subheader("What they came to")
    rows = [
        {"metric": meaning(name).title, "run": label(run), **_outcome_cells(outcome(name, line.metrics.series))}
        for name in names
        for run, line in zip(runs, lines, strict=True)
    ]
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        key="outcomes",
        height="content" if len(rows) <= 14 else 530,
        column_config={
            title: st.column_config.TextColumn(title, alignment="right")
            for title in ("last", "best", "at step", "mean of last 10")
        },
    )
    st.caption("Best is the highest where more is better, the lowest where less is; elsewhere there is none.")


def _outcome_cells(found: Outcome) -> dict[str, str]:
    return {
        "last": number(found.last),
        "best": number(found.best),
        "at step": count(found.best_step),
        "mean of last 10": number(found.tail_mean),
    }
