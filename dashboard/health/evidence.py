"""The evidence of a hint: its curve, and links to the groups and completions that show it."""

import streamlit as st

from backend.contract.health import Evidence, Hint
from backend.contract.records import Run, Series
from dashboard.charts.figure import Figure
from dashboard.charts.lines import Look, line_figure
from dashboard.charts.meaning import meaning
from dashboard.charts.palette import INK
from dashboard.charts.series import long_table
from dashboard.components.address import GROUPS, SEARCH, open_tab, write
from dashboard.format import count
from dashboard.group.rows import WORDS
from dashboard.search import FIELDS
from dashboard.status import FINISHED

BEFORE = 3  # times the evidence's own length, shown before it
HEIGHT = 110
_FILTERS = ("show", "bookmarked", "sort", "search", "step")  # of the groups, in the address
_LEAVE = "leave-health"


def shown_steps(evidence: Evidence) -> tuple[int, int]:
    """The first and the last step of its charts."""
    length = evidence.to_step - evidence.from_step + 1
    return max(0, evidence.from_step - BEFORE * length), max(evidence.to_step, evidence.from_step + 1)


def evidence_figure(name: str, series: Series, evidence: Evidence) -> Figure:
    """One metric; a line marks where the evidence begins, unless all of the chart is evidence."""
    about = meaning(name)
    first, last = shown_steps(evidence)
    look = Look(
        colours=((about.title, INK),),
        axis=about.axis,
        x_axis="~d",
        x_domain=(first, last),
        from_zero=True,
        mark=evidence.from_step if evidence.from_step > first else None,
        height=HEIGHT,
    )
    return line_figure(look, long_table({name: series}, {name: about.title}, 0.0))


def draw_ways(run: Run, hint: Hint) -> None:
    """Draw links to the groups of the step that shows it best, and to the completions of all its steps if they end alike."""
    seen = hint.evidence
    if seen is None or run.kind != "grpo":
        return
    with st.container(horizontal=True):
        if seen.finish_reason is not None:
            asked = {
                "finish": FINISHED[seen.finish_reason],
                "steps_from": str(seen.from_step),
                "steps_to": str(seen.to_step),
            }
            _draw_way(hint, SEARCH, _completions(seen), ":material/manage_search:", asked)
        if seen.step is not None:
            state = WORDS[seen.state] if seen.state else None
            label = f"Open the {f'{state} ' if state else ''}groups of step {count(seen.step)}"
            asked = {"step": str(seen.step)} | ({"show": state} if state else {})
            _draw_way(hint, GROUPS, label, ":material/grid_view:", asked)


def go_to(tab: str, **asked: str) -> None:
    """Open a tab with only these filters. This is a callback: `leave_if_asked` draws the page again."""
    for name in (*FIELDS, *_FILTERS):
        st.session_state.pop(name, None)
    write(**dict.fromkeys((*FIELDS, *_FILTERS)) | asked)
    open_tab(tab)
    st.session_state[_LEAVE] = True


def leave_if_asked() -> None:
    """Draw the whole page again if a click inside a part of it asked for another tab."""
    if st.session_state.pop(_LEAVE, False):
        st.rerun()


def _draw_way(hint: Hint, tab: str, label: str, icon: str, asked: dict[str, str]) -> None:
    st.button(label, icon=icon, key=f"way-{hint.code}-{tab}", on_click=go_to, args=(tab,), kwargs=asked)


def _completions(seen: Evidence) -> str:
    ended = "cut at the token limit" if seen.finish_reason == "length" else "that ended by themselves"
    return f"Find the completions {ended} (steps {count(seen.from_step)} to {count(seen.to_step)})"
