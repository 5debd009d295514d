"""Thumb up, thumb down, or neither, on one completion."""

import streamlit as st

from backend.contract.groups import CompletionRecord
from backend.contract.people import Thumb
from dashboard.session import carried_out, client

_PRESSED: dict[Thumb, int] = {"down": 0, "up": 1}  # as Streamlit's thumbs count


def draw_thumbs(completion: CompletionRecord) -> None:
    """The two thumbs; pressing the pressed one takes it back. Only they are drawn again."""
    st.fragment(_draw)(completion.id, completion.thumb)


def _draw(completion_id: int, stored: Thumb | None) -> None:
    key, last = f"thumb-{completion_id}", f"thumb-kept-{completion_id}"
    if key not in st.session_state:  # drawn for the first time since the page was opened
        st.session_state[key] = st.session_state[last] = None if stored is None else _PRESSED[stored]
    st.feedback("thumbs", key=key, on_change=_keep, args=(completion_id, key, last))


def _keep(completion_id: int, key: str, last: str) -> None:
    pressed = st.session_state[key]
    thumb = next((thumb for thumb, number in _PRESSED.items() if number == pressed), None)
    if carried_out(lambda: client().people.thumb(completion_id, thumb)):
        st.session_state[last] = pressed
    else:
        st.session_state[key] = st.session_state[last]  # what is shown is what is stored
