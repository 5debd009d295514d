"""Tables: each column is described once, with its title, its value in a row, and how it is drawn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from dashboard.format import MISSING
from dashboard.session import LEFT

T = TypeVar("T")
_SHOWN = "rows-shown"
_ROW, _HEADER, _TALLEST = 36, 38, 620  # pixels


@dataclass(frozen=True)
class Column(Generic[T]):
    """One column; `figure` is a number that was put into words, and `width` is in pixels or one of Streamlit's words."""

    title: str
    value: Callable[[T], object]
    width: int | Literal["small", "medium", "large"] | None = None
    help: str | None = None
    kind: Literal["text", "figure", "number", "image", "link"] = "text"  # the title of a link is its text

    def config(self) -> ColumnConfig:
        """The column as Streamlit draws it."""
        drawn = st.column_config
        match self.kind:
            case "number":
                return drawn.NumberColumn(self.title, width=self.width, help=self.help)
            case "image":
                return drawn.ImageColumn(self.title, width=self.width, help=self.help)
            case "link":
                return drawn.LinkColumn("", width=self.width, help=self.help, display_text=self.title)
        side: Literal["right"] | None = "right" if self.kind == "figure" else None
        return drawn.TextColumn(self.title, width=self.width, help=self.help, alignment=side)


def frame(rows: Sequence[T], columns: Mapping[str, Column[T]]) -> pd.DataFrame:
    """A line for each row, with the columns under their names."""
    return pd.DataFrame({name: [column.value(row) for row in rows] for name, column in columns.items()})


def draw(
    rows: Sequence[T], columns: Sequence[Column[T]], *, key: str, height: int | Literal["content"] = "content"
) -> None:
    """Draw the table for reading alone, each column under its title."""
    by_title = {column.title: column for column in columns}
    config = {title: column.config() for title, column in by_title.items()}
    st.dataframe(frame(rows, by_title), key=key, hide_index=True, height=height, column_config=config)


def pick(rows: Sequence[T], columns: Mapping[str, Column[T]], *, key: str) -> T | None:
    """Draw the table; the row in which a person clicked, as they saw it: a run that goes on may have put others there since.

    At most one such table stands on a page.
    """
    # Another key each time a page was left. The browser may still send the selection that led away when it goes back, and the
    # table would lead away again.
    left = st.session_state.get(LEFT, 0)
    key = f"{key}-{left}" if left else key
    event = st.dataframe(
        frame(rows, columns),
        key=key,
        on_select="rerun",
        selection_mode="single-cell",
        hide_index=True,
        height=min(_ROW * len(rows) + _HEADER, _TALLEST),
        row_height=_ROW,
        placeholder=MISSING,
        column_config={name: column.config() for name, column in columns.items()},
    )
    shown_key, shown = st.session_state.get(_SHOWN, (key, rows))
    st.session_state[_SHOWN] = key, rows
    seen: Sequence[T] = shown if shown_key == key else rows
    cells = event.selection.cells
    return seen[cells[0][0]] if cells and cells[0][0] < len(seen) else None
