"""A run's log: newest at the bottom."""

from datetime import tzinfo

import streamlit as st

from backend.contract.records import LogRecord, Run
from dashboard.format import aware
from dashboard.session import client, guard, zone
from dashboard.text import unturned

LEVELS = ("info", "warning", "error")
TALL, FITTING = 560, 24  # pixels of the view, and the lines that fit into it
KEPT = 1000  # lines on the page; the oldest leave first


def draw_level_filter() -> None:
    """The levels to show, kept in the address."""
    st.pills(
        "Levels",
        LEVELS,
        selection_mode="multi",
        default=LEVELS,
        key="levels",
        bind="query-params",
        label_visibility="collapsed",
    )


def draw_log(run: Run) -> None:
    """The lines, with level and time; the view follows new lines unless a person scrolled up."""
    levels = st.session_state.get("levels", LEVELS)
    every = _lines(run.id)
    lines = [line for line in every if line.level in levels or line.level not in LEVELS]
    if not every:
        written = "The worker writes here when it starts, saves, evaluates or warns."
        if run.recorded:
            written = "Here stands what could not be recorded, and what the program that trains the run says of it."
        st.info(f"No lines yet. {written}", icon=":material/notes:")
        return
    if not lines:
        st.info("No line of these levels among the newest: choose others above.", icon=":material/filter_alt:")
        return
    here = zone()
    with st.container(height=TALL if len(lines) > FITTING else "content", border=False, autoscroll=True, key="log"):
        st.code("\n".join(_line(line, here) for line in lines), language=None, wrap_lines=True)
    st.caption(f"Times are in the zone {here}.")


def _line(line: LogRecord, here: tzinfo) -> str:
    moment = aware(line.created_at).astimezone(here)
    head = f"{moment:%m-%d %H:%M:%S}  {line.level:<7}  "
    indent = "\n" + " " * len(head)  # so that part of a message cannot pass for a line
    return head + unturned(line.message).replace("\n", indent)


def _lines(run_id: int) -> list[LogRecord]:
    """The newest lines; earlier reads are kept in the session, and only new lines are fetched."""
    key = f"log-lines-{run_id}"
    lines: list[LogRecord] = st.session_state.get(key, [])
    while True:
        with guard():
            page = client().logs(run_id, after_id=lines[-1].id if lines else 0)
        lines = [*lines, *page.items][-KEPT:]
        if page.next_cursor is None or not page.items:
            st.session_state[key] = lines
            return lines
