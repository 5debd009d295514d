"""What is drawn, along which axis, taken together by what: every choice stands in the address."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from backend.contract.records import Run
from dashboard.charts.comparison import View
from dashboard.charts.figure import Figure
from dashboard.charts.meaning import in_order, meaning
from dashboard.charts.places import XAxis
from dashboard.comparison.legend import forget_front
from dashboard.comparison.settings import choices, settings_of_sweep
from dashboard.components.chart import heading, show
from dashboard.format import counted, number, plain

DEFAULT = ("eval/pass@1", "reward", "kl", "entropy", "completions/mean_length", "group_reward_std")
ON_PAIRS = ("eval/accuracy", "eval/margin", "loss", "eval/loss")  # where no run samples while it trains
AXES: dict[str, XAxis] = {"step": "step", "samples": "samples", "tokens": "tokens", "wall time": "time"}
AT_ONCE = 6  # charts; more on demand
MANY, OF_MANY = 12, 2  # of more lines than that, fewer charts at once: as many as a screen holds
NAMED = 3  # of the lines that a chart lacks
_RANGE, _CHARTS = "range", "charts"  # in the address


@dataclass(frozen=True)
class Controls:
    """The choices. No field to take runs together by: each run is a line."""

    names: list[str]
    by: tuple[str, ...]
    view: View


def draw_charts(controls: Controls, logged: Mapping[str, Collection[str]], figure: Callable[[str], Figure]) -> None:
    """A chart for each metric, two beside each other, of the lines in `logged`; the first few, and the way to more."""
    lines = len(logged)
    shown = max(AT_ONCE if lines <= MANY else OF_MANY, _number(st.query_params.get(_CHARTS, "")))
    names = controls.names[:shown]
    for start in range(0, len(names), 2):
        for column, name in zip(st.columns(2), names[start : start + 2], strict=False):
            with column.container(border=True, key=f"compare-{names.index(name)}"):
                _draw_chart(name, figure(name), controls.view)
                if words := without(name, logged):
                    st.caption(plain(words))
    if len(controls.names) > shown:
        left = len(controls.names) - shown
        st.button(f"{counted(left, 'more chart')}", icon=":material/expand_more:", key="more-charts", on_click=_more)


def _draw_chart(name: str, figure: Figure, view: View) -> None:
    about = meaning(name)
    st.markdown(heading(about.title, about.unit), help=about.help)
    if figure.data.empty:
        st.caption("None of these runs has logged it here." if view.zoom else "None of these runs has logged it yet.")
    # a zoom is another chart to the browser: the range that was dragged over does not stay in it
    ends = "" if view.zoom is None else "-{:.1f}-{:.1f}".format(*view.zoom)
    show(figure, key=f"comparison-{name}-{view.axis}{ends}", about=about.title, on_zoom=zoom_to)


def logged_by(runs: Sequence[Run], line: Callable[[Run], str]) -> dict[str, set[str]]:
    """Line -> the metrics that its runs have logged."""
    found: dict[str, set[str]] = {}
    for run in runs:
        found.setdefault(line(run), set()).update(run.summary)
    return found


def without(name: str, logged: Mapping[str, Collection[str]]) -> str:
    """Which lines a chart lacks where it has others: "dapo logs no kl". One whose runs have made no step may still log it."""
    lacking = [line for line, names in logged.items() if name not in names and "step_time" in names]
    if not lacking or not any(name in names for names in logged.values()):
        return ""
    others = f" and {counted(len(lacking) - NAMED, 'other')}" if len(lacking) > NAMED else ""
    return f"{', '.join(lacking[:NAMED])}{others} {'logs' if len(lacking) == 1 else 'log'} no {name}"


def metrics_of(runs: Sequence[Run]) -> list[str]:
    """What the runs logged, and what they usually will."""
    usual = DEFAULT if any(run.kind == "grpo" for run in runs) else ON_PAIRS
    return in_order([*usual, *(name for run in runs for name in run.summary if ":" not in name)])


def show_controls(runs: list[Run], *, sweep: bool) -> Controls:
    """The choices in two lines."""
    options = metrics_of(runs)
    usual = DEFAULT if any(run.kind == "grpo" for run in runs) else ON_PAIRS
    what, together = st.columns([5, 3])
    names = what.multiselect(
        "Charts",
        options,
        default=list(usual),
        format_func=lambda name: meaning(name).title,
        key="metrics",
        bind="query-params",
        wrap=True,
    )
    by = together.multiselect(
        "Group by",
        choices(runs),
        default=settings_of_sweep(runs) if sweep else [],
        key="by",
        bind="query-params",
        placeholder="Nothing: each run is a line",
        help="Runs that have the same in these fields are drawn as one line: the mean over their seeds, with its 95 % interval\\. "
        "The fields in which the runs differ come first\\.",
        on_change=forget_front,
        wrap=True,
    )
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        axis = st.segmented_control(
            "Along",
            list(AXES),
            default="step",
            required=True,
            key="x",
            bind="query-params",
            on_change=reset_zoom,
        )
        weight = st.slider("Smoothing", 0.0, 0.95, 0.6, 0.05, key="smooth", bind="query-params", width=220)
        log = st.toggle(
            "Logarithmic",
            key="log",
            bind="query-params",
            help="The vertical axis; values of 0 and below are left out\\.",
        )
        ends = _zoom()
        if ends is not None:
            _show_zoom(ends, str(axis))
    view = View(AXES[str(axis)], weight, log, max(run.progress.total_steps for run in runs), ends, not by)
    return Controls(names, tuple(by), view)


def zoom_to(low: float, high: float) -> None:
    """Show this part of the x axis, in all charts."""
    st.query_params[_RANGE] = f"{max(0.0, low):.1f}-{high:.1f}"


def reset_zoom() -> None:
    """Show all of the x axis."""
    st.query_params.pop(_RANGE, None)


def _zoom() -> tuple[float, float] | None:
    low, _, high = st.query_params.get(_RANGE, "").partition("-")
    try:
        ends = float(low), float(high)
    except ValueError:
        return None
    return ends if 0 <= ends[0] < ends[1] < 1e18 else None


def _show_zoom(ends: tuple[float, float], axis: str) -> None:
    low, high = (number(end) for end in ends)
    st.button(
        f"{plain(axis).capitalize()} {low} to {high}",
        icon=":material/zoom_out:",
        key="zoom-out",
        help="Show all again",
        on_click=reset_zoom,
    )


def _more() -> None:
    st.query_params[_CHARTS] = str(max(AT_ONCE, _number(st.query_params.get(_CHARTS, ""))) + AT_ONCE)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0
