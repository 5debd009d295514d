"""Tables in which a click on a row leads somewhere."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from dashboard.format import MISSING
from dashboard.leaving import LEFT

T = TypeVar("T")
_SHOWN = "rows-shown"
_ROW, _HEADER, _TALLEST = 36, 38, 620  # pixels


def pick_row(
    rows: Sequence[T],
    table: pd.DataFrame,
    columns: Mapping[str, ColumnConfig],
    *,
    shown: Sequence[str] | None = None,
    key: str,
) -> T | None:
    """Draw the table, a line for each of `rows`, with the columns `shown` (None: all); the row in which a person clicked."""
    key = _unclicked(key)
    event = st.dataframe(
        table,
        key=key,
        on_select="rerun",
        selection_mode="single-cell",
        hide_index=True,
        height=min(_ROW * len(rows) + _HEADER, _TALLEST),
        row_height=_ROW,
        placeholder=MISSING,
        column_order=shown,
        column_config=dict(columns),
    )
    return _clicked(key, rows, event.selection.cells)


def _unclicked(key: str) -> str:
    """The key to draw a table with: another one each time a page was left. The browser may still send the selection that led
    away when it goes back, and the table would lead away again."""
    left = st.session_state.get(LEFT, 0)
    return f"{key}-{left}" if left else key


def _clicked(key: str, rows: Sequence[T], cells: Sequence[tuple[int, str]]) -> T | None:
    """The row of what the person saw, though a run that goes on may have put others there since. At most one such table
    stands on a page: what it showed before, and was clicked in, is remembered until then.
    """
    shown_key, shown = st.session_state.get(_SHOWN, (key, rows))
    st.session_state[_SHOWN] = key, rows
    seen: Sequence[T] = shown if shown_key == key else rows
    return seen[cells[0][0]] if cells and cells[0][0] < len(seen) else None
