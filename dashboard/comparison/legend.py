"""One legend for all charts: a colour for each run or group; a click brings it to the front."""

import base64
from collections.abc import Sequence
from typing import NamedTuple

import streamlit as st

from dashboard.components.address import numbers, write
from dashboard.components.told import heard, tell
from dashboard.format import plain

HINT = "Click a name to bring its line to the front; drag across a chart to zoom in."
_FRONT = "front"  # in the address: the numbers of what is in front


class Entry(NamedTuple):
    """A line of the charts."""

    number: int
    label: str
    colour: str
    dashed: bool = False
    note: str = ""


def choose_front(entries: Sequence[Entry], usual: frozenset[int]) -> frozenset[int]:
    """The legend; which entries are in front: those that a person chose, else the `usual` ones."""
    by_number = {entry.number: entry for entry in entries}
    tell(_FRONT, [number for number in numbers(_FRONT, len(entries)) if number in by_number])
    chosen = st.pills(
        "Lines",
        list(by_number),
        selection_mode="multi",
        key=_FRONT,
        format_func=lambda number: _words(by_number[number]),
        label_visibility="collapsed",
        on_change=heard(_FRONT, _keep),
    )
    return frozenset(chosen) or usual


def forget_front() -> None:
    """Other groups are other lines."""
    write(front=None)


def _keep(chosen: list[int]) -> None:
    write(front=",".join(map(str, chosen)) or None)


def _words(entry: Entry) -> str:
    note = f" :gray[{plain(entry.note)}]" if entry.note else ""
    return f"![]({_stroke(entry.colour, dashed=entry.dashed)}) {plain(entry.label)}{note}"


def _stroke(colour: str, *, dashed: bool) -> str:
    """A piece of the line, as the data address of a picture."""
    dashes = ' stroke-dasharray="6 4"' if dashed else ""
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="26" height="16">'
        f'<path d="M1 8h24" stroke="{colour}" stroke-width="4"{dashes}/></svg>'
    )
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
