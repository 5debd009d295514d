"""Which row of a table a person clicked: a row of what they saw, though a run that goes on may have put others there since."""

from collections.abc import Sequence
from typing import TypeVar

import streamlit as st

from dashboard.session import LEFT

T = TypeVar("T")
_SHOWN = "rows-shown"


def unclicked(key: str) -> str:
    """The key to draw a table with: another one each time a page was left. The browser may still send the selection that led
    away when it goes back, and the table would lead away again."""
    left = st.session_state.get(LEFT, 0)
    return f"{key}-{left}" if left else key


def clicked(key: str, rows: Sequence[T], cells: Sequence[tuple[int, str]]) -> T | None:
    """The row that the first of the selected `cells` is of; None where nobody clicked. At most one such table stands on a page.

    `rows` are what the table `key` shows now. What it showed before, and was clicked in, is remembered until then.
    """
    shown_key, shown = st.session_state.get(_SHOWN, (key, rows))
    st.session_state[_SHOWN] = key, rows
    seen: Sequence[T] = shown if shown_key == key else rows
    return seen[cells[0][0]] if cells and cells[0][0] < len(seen) else None
