"""Runs, the home page: those that are running, those that wait, and those that have ended."""

from collections.abc import Callable

import streamlit as st

from backend.contract.records import TERMINAL, Page, Run
from dashboard.components.listing import show_pager
from dashboard.components.live import draw_again
from dashboard.leaving import go
from dashboard.runs.actions import picked
from dashboard.runs.filters import PAGES, clear_filters, is_narrowed, show_filters
from dashboard.runs.row import show_runs
from dashboard.session import client, guard, link, script, settings

_ORDER = {"running": 0, "queued": 1, "paused": 2}  # of the live runs; those that wait stand as they will start


def draw_page() -> None:
    """Draw the page: tools, live runs, which tick, ended runs, which do not, and pages."""
    with guard():
        with st.container(horizontal=True, vertical_alignment="center", key="tools"):
            if st.button("New run", type="primary", icon=":material/add:"):
                go("new-run")
            link(
                "sweep",
                "New sweep",
                icon=":material/science:",
                help="Queue many runs at once: algorithms side by side, or any settings",
            )
            compare = st.container(width="content", key="compare")
            st.space("stretch")
            fetch = show_filters()
        page = fetch()
    ended = [run for run in page.items if run.status in TERMINAL]
    if not page.items:
        draw_empty()
    draw_live(fetch, frozenset(run.id for run in ended), len(page.items) == len(ended), compare)
    show_runs(ended)
    show_pager(PAGES, page.next_cursor)
    with guard():
        if client().deletions():
            draw_deletions()


@st.fragment(run_every=2)
def draw_deletions() -> None:
    """What remains of deleted runs in the database."""
    with guard():
        for one in client().deletions():
            st.caption(f"Run {one.run_id} is deleted; {one.groups_left:,} groups of it are still to be removed.")


@st.fragment(run_every=2)
def draw_live(
    fetch: Callable[[], Page[Run]], ended: frozenset[int], idle: bool, compare: st.delta_generator.DeltaGenerator
) -> None:
    """The runs that still change, read again; the whole page is drawn again once a run has ended or appeared."""
    with guard():
        page = fetch()
    live = [run for run in page.items if run.status not in TERMINAL]
    if idle != (not live) or frozenset(run.id for run in page.items if run.status in TERMINAL) != ended:
        draw_again()
    live.sort(key=lambda run: (_ORDER[run.status], run.queue_position or 0, run.id))
    with compare:
        draw_compare()
    show_runs(live)


def draw_compare() -> None:
    """A link to the charts of the chosen runs."""
    runs = picked()
    label = f"Compare {len(runs)} selected" if runs else "Compare selected"
    icon = ":material/stacked_line_chart:"
    if len(runs) < 2:
        st.page_link(script("compare"), label=label, icon=icon, help="Tick two runs or more", disabled=True)
    else:
        link("compare", label, icon=icon, runs=",".join(map(str, runs)))


def draw_empty() -> None:
    """What will appear here, and how to make it appear."""
    with st.container(border=True, horizontal_alignment="center", key="empty"):
        if is_narrowed():
            st.markdown("**No run matches these filters.**", text_alignment="center")
            st.button("Show all runs", icon=":material/filter_alt_off:", on_click=clear_filters)
        elif settings().viewing:
            st.markdown("**Nothing to import yet.** The folder is looked at again and again.", text_alignment="center")
        else:
            st.markdown(
                "**No runs yet.** Each run will have a row here: its state, its progress, its reward as it learns.",
                text_alignment="center",
            )
            link("new-run", "Start the first run", icon=":material/add:")


draw_page()
