"""One run: is it learning, and why."""

from collections.abc import Callable

import streamlit as st

from backend.contract.records import TERMINAL, Run
from dashboard.components.address import GROUPS, OVERVIEW, open_tab, run_in_address, tab_in_address
from dashboard.components.run_checkpoints import draw_checkpoints
from dashboard.components.run_configuration import draw_configuration
from dashboard.components.run_groups import draw_filters, draw_groups
from dashboard.components.run_header import draw_header
from dashboard.components.run_log import draw_level_filter, draw_log
from dashboard.components.run_overview import draw_overview
from dashboard.components.style import apply_style
from dashboard.session import client, guard, link

TABS = (OVERVIEW, GROUPS, "Configuration", "Log", "Checkpoints")
TABS_ON_PAIRS = tuple(tab for tab in TABS if tab != GROUPS)
TABS_OF_A_SAMPLE = TABS[1:4]
TICK = 2.0  # seconds between two looks at a run that moves


def main() -> None:
    """Header, tabs, and the tab that is open."""
    run_id = run_in_address()
    if run_id is None:
        st.info("This address names no run.", icon=":material/search_off:")
        link("runs", "All runs", icon=":material/list:")
        return
    with guard():
        run = client().run(run_id)
    st.set_page_config(page_title=f"{run.name} · Groupscope")
    apply_style()
    live = bool(st.session_state.get("live", True))
    tick = TICK if live and run.status not in TERMINAL else None
    st.fragment(draw_header, run_every=tick)(run.id, run.status, live)
    labels = TABS_OF_A_SAMPLE if run.kind == "sample" else TABS if run.kind == "grpo" else TABS_ON_PAIRS
    st.session_state["tab"] = tab_in_address(labels)  # the address leads, also when the browser goes back
    tabs = st.tabs(labels, key="tab", on_change=lambda: open_tab(st.session_state["tab"]))
    with next((tab for tab in tabs if tab.open), tabs[0]):
        _draw_tab(st.session_state["tab"], run, tick)


def _draw_tab(name: str, run: Run, tick: float | None) -> None:
    if name == OVERVIEW:
        st.slider("Smoothing", 0.0, 0.95, 0.6, 0.05, key="smoothing", bind="query-params", width=260)
        _ticking(draw_overview, run, tick)
    elif name == GROUPS:
        draw_filters()
        _ticking(draw_groups, run, tick)
    elif name == "Configuration":
        draw_configuration(run)
    elif name == "Log":
        draw_level_filter()
        _ticking(draw_log, run, tick)
    else:
        draw_checkpoints(run)


def _ticking(draw: Callable[[Run], None], run: Run, tick: float | None) -> None:
    """Draw a part of the page again and again, alone; the rest of the page stays as it is."""
    st.fragment(draw, run_every=tick)(run)


main()
