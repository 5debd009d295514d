"""What is drawn, along which axis, grouped by what, and which lines are in front: every choice stands in the address."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import streamlit as st

from backend.contract.records import BY_RANK, Run
from dashboard.charts.comparison import View
from dashboard.charts.figure import Figure, picture_address
from dashboard.charts.meaning import in_order, meaning
from dashboard.charts.series import XAxis
from dashboard.comparison.settings import choices, settings_of_sweep
from dashboard.components.address import numbers, read, shown_at_once, write
from dashboard.components.chart import heading, show
from dashboard.components.listing import across, offer_more
from dashboard.components.synced import on_choice, sync
from dashboard.format import counted, number, plain

DEFAULT = ("eval/pass@1", "reward", "kl", "entropy", "completions/mean_length", "group_reward_std")
ON_PAIRS = ("eval/accuracy", "eval/margin", "loss", "eval/loss")  # if no run samples while it trains
AXES: dict[str, XAxis] = {"step": "step", "samples": "samples", "tokens": "tokens", "wall time": "time"}
AT_ONCE = 6  # charts; more on demand
MANY, OF_MANY = 12, 2  # with more lines, fewer charts at once: as many as a screen holds
NAMED = 3  # of the lines that a chart lacks, the others are counted
_RANGE, _CHARTS = "range", "charts"  # in the address
HINT = "Click a name to bring its line to the front; drag across a chart to zoom in."
_FRONT = "front"  # in the address: the numbers of the lines in front


@dataclass(frozen=True)
class Controls:
    """The choices. With nothing to group by, each run is a line."""

    names: list[str]
    by: tuple[str, ...]
    view: View


def draw_charts(
    controls: Controls, logged: Mapping[str, Collection[str]], stepped: Collection[str], figure: Callable[[str], Figure]
) -> None:
    """The first charts, two in a row, and a button for more; `logged` names the metrics of each line, `stepped` those that made a step."""
    lines, zoom = len(logged), controls.view.zoom
    shown = shown_at_once(_CHARTS, AT_ONCE if lines <= MANY else OF_MANY)
    names = controls.names[:shown]
    # a zoom is another chart to the browser: the range that was dragged over does not stay in it
    ends = "" if zoom is None else "-{:.1f}-{:.1f}".format(*zoom)
    for column, name in across(names, 2):
        about, drawn = meaning(name), figure(name)
        with column.container(border=True, key=f"compare-{names.index(name)}"):
            st.markdown(heading(about.title, about.unit), help=about.help)
            if drawn.data.empty and (zoom or not any(name in names for names in logged.values())):
                st.caption(f"None of these runs has recorded it {'here' if zoom else 'yet'}.")
            if controls.view.log and len(drawn.data) and drawn.data["smooth"].isna().all():
                st.caption("No value is above 0, so a logarithmic axis has nothing to show.")
                continue
            show(drawn, key=f"comparison-{name}-{controls.view.axis}{ends}", about=about.title, on_zoom=zoom_to)
            if words := without(name, logged, stepped):
                st.caption(plain(words))
    offer_more(len(controls.names) - shown, "chart", _CHARTS, AT_ONCE, key="more-charts")


def without(name: str, logged: Mapping[str, Collection[str]], stepped: Collection[str]) -> str:
    """The lines that a chart of others lacks: "No kl was recorded in dapo." Runs that have made no step may still record it."""
    lacking = [line for line, names in logged.items() if name not in names and line in stepped]
    if not lacking or not any(name in names for names in logged.values()):
        return ""
    return f"No {name} was recorded in {named(lacking)}."


def named(lines: Sequence[str]) -> str:
    """The first of some lines by name, and how many others there are."""
    others = f" and {counted(len(lines) - NAMED, 'other')}" if len(lines) > NAMED else ""
    return f"{', '.join(lines[:NAMED])}{others}"


def usual_of(runs: Sequence[Run]) -> Sequence[str]:
    """The metrics that are drawn unless somebody chose others."""
    return DEFAULT if any(run.by_groups for run in runs) else ON_PAIRS


def metrics_of(runs: Sequence[Run]) -> list[str]:
    """The metrics that the runs logged, and those that they usually will."""
    return in_order(
        [
            *usual_of(runs),
            *(name for run in runs for name in run.summary if ":" not in name and not name.startswith(BY_RANK)),
        ]
    )


def draw_controls(runs: list[Run], *, sweep: bool) -> Controls:
    """The choices in two lines."""
    what, together = st.columns([5, 3])
    names = what.multiselect(
        "Charts",
        metrics_of(runs),
        default=list(usual_of(runs)),
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
        help="Runs with the same values in these fields are drawn as one line: the mean over their seeds, with its 95 % interval\\. "
        "The fields in which the runs differ come first\\.",
        on_change=write,  # other settings are other lines
        kwargs={_FRONT: None},
        wrap=True,
    )
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        axis = st.segmented_control(
            "X axis", list(AXES), default="step", required=True, key="x", bind="query-params", on_change=reset_zoom
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
            low, high = (number(end) for end in ends)
            words, icon = f"{plain(str(axis)).capitalize()} {low} to {high}", ":material/zoom_out:"
            st.button(words, icon=icon, key="zoom-out", help="Show all again", on_click=reset_zoom)
    view = View(AXES[str(axis)], weight, log, max(run.progress.total_steps for run in runs), ends, not by)
    return Controls(names, tuple(by), view)


def zoom_to(low: float, high: float) -> None:
    """Show this part of the x axis in all charts."""
    write(**{_RANGE: f"{max(0.0, low):.1f}-{high:.1f}"})


def reset_zoom() -> None:
    """Show all of the x axis."""
    write(**{_RANGE: None})


def _zoom() -> tuple[float, float] | None:
    low, _, high = read(_RANGE).partition("-")
    try:
        ends = float(low), float(high)
    except ValueError:
        return None
    return ends if 0 <= ends[0] < ends[1] < 1e18 else None


class Entry(NamedTuple):
    """A line of the charts."""

    number: int
    label: str
    colour: str
    dashed: bool = False
    note: str = ""

    @property
    def words(self) -> str:
        """A piece of the line, as the data address of a picture, and what it is called."""
        dashes = ' stroke-dasharray="6 4"' if self.dashed else ""
        line = f'<path d="M1 8h24" stroke="{self.colour}" stroke-width="4"{dashes}/>'
        piece = picture_address(f'<svg xmlns="http://www.w3.org/2000/svg" width="26" height="16">{line}</svg>')
        note = f" :gray[{plain(self.note)}]" if self.note else ""
        return f"![]({piece}) {plain(self.label)}{note}"


def choose_front(entries: Sequence[Entry], usual: frozenset[int]) -> frozenset[int]:
    """Draw the legend. Returns the entries in front: those that a person chose, or the `usual` ones."""
    by_number = {entry.number: entry for entry in entries}
    sync(_FRONT, [number for number in numbers(_FRONT, len(entries)) if number in by_number])
    chosen = st.pills(
        "Lines",
        list(by_number),
        selection_mode="multi",
        key=_FRONT,
        format_func=lambda number: by_number[number].words,
        label_visibility="collapsed",
        on_change=on_choice(_FRONT, lambda chosen: write(front=",".join(map(str, chosen)) or None)),
    )
    return frozenset(chosen) or usual
