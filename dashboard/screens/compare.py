"""Several runs beside each other: which is better, and what they differ in."""

import pandas as pd
import streamlit as st
import yaml

from backend.contract.base import Json
from backend.contract.records import TERMINAL, Metrics, Run
from dashboard.charts.comparison import Line, Outcome, comparison_figure, outcome
from dashboard.charts.group import swatch
from dashboard.charts.meaning import in_order, meaning
from dashboard.charts.palette import run_colours
from dashboard.charts.series import XAxis
from dashboard.components.chart import show
from dashboard.components.config_difference import differences
from dashboard.components.group_arithmetic import exact
from dashboard.components.model_text import one_line
from dashboard.components.stored import completions_per_step
from dashboard.format import MISSING, count, number
from dashboard.session import client, guard, link
from dashboard.status import look

MOST = 20
DEFAULT = ("reward", "eval/pass@1", "kl", "completions/mean_length", "group_reward_std", "entropy")
AXES: dict[str, XAxis] = {"step": "step", "samples": "samples", "tokens": "tokens", "wall time": "time"}
POINTS = 1000
TICK = 4.0  # seconds between two looks while a run moves


def main() -> None:
    """Choose, look, read."""
    runs = _choose_runs()
    if not runs:
        st.info(
            "Choose two runs or more: their curves appear on the same charts, with the fields in which they differ and what "
            "each came to.",
            icon=":material/stacked_line_chart:",
        )
        link("runs", "All runs", icon=":material/list:")
        return
    names, axis, weight, log = _draw_controls(runs)
    moving = any(run.status not in TERMINAL for run in runs)
    st.fragment(_draw_comparison, run_every=TICK if moving else None)(
        [run.id for run in runs], names, AXES[axis], weight, log
    )


def _draw_comparison(run_ids: list[int], names: list[str], axis: XAxis, weight: float, log: bool) -> None:
    """Legend, charts and tables: drawn again while a run moves."""
    with guard():
        runs = [client().run(run_id) for run_id in run_ids]
        metrics = client().compare_metrics(run_ids, {*names, "num_tokens", "step_time"}, max_points=POINTS)
    lines = _lines(runs, metrics)
    _draw_legend(runs)
    _draw_charts(names, lines, axis, weight, log, max(run.progress.total_steps for run in runs))
    _draw_differences(runs)
    _draw_outcomes(names, runs, lines)


def _choose_runs() -> list[Run]:
    with guard():
        known = {run.id: run for run in client().runs(limit=200).items}
        wanted = _asked(known)
    # the address leads, also when the browser goes back to an earlier one
    if "compared" not in st.session_state or wanted != st.session_state.get("compared-in-address"):
        st.session_state["compared"] = wanted
    chosen = st.multiselect(
        "Runs",
        list(known),
        key="compared",
        format_func=lambda run_id: f"{one_line(known[run_id].name)} #{run_id}",
        max_selections=MOST,
        placeholder="Choose runs by name or number",
    )
    if chosen != wanted:
        _put_into_address(chosen)
    st.session_state["compared-in-address"] = chosen
    return [known[run_id] for run_id in chosen]


def _put_into_address(run_ids: list[int]) -> None:
    if run_ids:
        st.query_params["runs"] = ",".join(map(str, run_ids))
    else:
        st.query_params.pop("runs", None)


def _asked(known: dict[int, Run]) -> list[int]:
    """The runs in the address; those too old for the list are fetched one by one."""
    asked = [int(part) for part in st.query_params.get("runs", "").split(",") if part.isdecimal()]
    unique = list(dict.fromkeys(asked))[:MOST]
    for run_id in unique:
        if run_id not in known:
            known[run_id] = client().run(run_id)
    return unique


def _draw_controls(runs: list[Run]) -> tuple[list[str], str, float, bool]:
    logged = in_order(name for run in runs for name in run.summary if ":" not in name)
    options = in_order([*logged, *DEFAULT])
    names = st.multiselect("Charts", options, default=list(DEFAULT), key="metrics", bind="query-params")
    axis, smoothing, scale = st.columns([4, 3, 5], vertical_alignment="bottom")
    along = axis.segmented_control("Along", list(AXES), default="step", required=True, key="x", bind="query-params")
    weight = smoothing.slider("Smoothing", 0.0, 0.95, 0.6, 0.05, key="smooth", bind="query-params")
    log = scale.toggle(
        "Logarithmic", key="log", bind="query-params", help="The vertical axis; values of 0 and below are left out."
    )
    return names, str(along), weight, log


def _label(run: Run) -> str:
    return f"{one_line(run.name)} #{run.id}"


def _lines(runs: list[Run], metrics: list[Metrics]) -> list[Line]:
    colours = run_colours([run.id for run in runs])
    by_run = {each.run_id: each for each in metrics}
    return [
        Line(
            _label(run),
            colours[run.id],
            by_run.get(run.id, Metrics(run_id=run.id, series={})),
            completions_per_step(run.config),
        )
        for run in runs
    ]


def _draw_legend(runs: list[Run]) -> None:
    """The runs with their colours: one legend for all charts."""
    colours = run_colours([run.id for run in runs])
    st.dataframe(
        pd.DataFrame(
            {
                "": [swatch(colours[run.id]) for run in runs],
                "run": [_label(run) for run in runs],
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


def _draw_charts(names: list[str], lines: list[Line], axis: XAxis, weight: float, log: bool, steps: int) -> None:
    for start in range(0, len(names), 2):
        for column, name in zip(st.columns(2), names[start : start + 2], strict=False):
            about = meaning(name)
            with column, st.container(border=True, key=f"compare-{names.index(name)}"):
                st.markdown(f"**{about.title}**", help=about.help)
                figure = comparison_figure(name, lines, axis=axis, weight=weight, log=log, steps=steps)
                if figure.data.empty:
                    st.caption("None of these runs has logged it yet.")
                show(figure, key=f"comparison-{name}", about=about.title)


def _draw_differences(runs: list[Run]) -> None:
    st.subheader("What they differ in")
    if len(runs) < 2:
        st.caption("Choose a second run to see the fields in which they differ.")
        return
    rows = differences({run.id: run.config for run in runs})
    if not rows:
        st.caption("Nothing: their configurations are the same.")
        return
    table = pd.DataFrame(
        [{"field": path} | {_label(run): _cell(row[run.id]) for run in runs} for path, row in rows.items()]
    )
    st.dataframe(table, hide_index=True, key="differences", height="content" if len(table) <= 12 else 460)


def _cell(value: Json) -> str:
    if value is None:
        return MISSING
    if isinstance(value, float):
        return exact(value)
    return one_line(
        value
        if isinstance(value, str)
        else yaml.safe_dump(value, default_flow_style=True).removesuffix("\n...\n").strip()
    )


def _draw_outcomes(names: list[str], runs: list[Run], lines: list[Line]) -> None:
    st.subheader("What they came to")
    rows = [
        {"metric": meaning(name).title, "run": _label(run), **_outcome_cells(outcome(name, line.metrics.series))}
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


main()
