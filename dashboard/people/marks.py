"""Marks that people set: the bookmark of a group, with a note on it, and the thumbs of its completions."""

from dataclasses import dataclass

import streamlit as st

from backend.contract.base import clean
from backend.contract.people import Bookmark, Thumb
from dashboard.format import ago
from dashboard.session import carried_out, client

LONGEST_NOTE = 20_000
_PRESSED: dict[Thumb, int] = {"down": 0, "up": 1}  # as Streamlit's thumbs count


@dataclass(frozen=True)
class _Acted:
    """What somebody made, on this page, of the bookmark that the page was drawn with."""

    before: Bookmark | None
    now: Bookmark | None
    note: str  # the last one, which comes back with the bookmark


@st.fragment
def draw_bookmark(group_id: int, drawn: Bookmark | None) -> None:
    """The star, and beside a set one the note. Only they are drawn again; a note is kept when its field is left."""
    acted = _acted(group_id, drawn)
    bookmark = acted.now
    with st.container(horizontal=True, vertical_alignment="center", key=f"bookmark-{group_id}"):
        # Two buttons with keys of their own: a press that arrives twice does the same twice.
        if bookmark:
            st.button(
                "Bookmarked",
                icon=":material/bookmark_added:",
                key=f"unmark-{group_id}",
                type="primary",
                help="Remove the bookmark",
                on_click=_remove,
                args=(group_id, drawn),
            )
            _draw_note(group_id, drawn, bookmark)
        else:
            st.button(
                "Bookmark",
                icon=":material/bookmark_add:",
                key=f"mark-{group_id}",
                help="Find this group again: the run's groups can show bookmarked ones",
                on_click=_keep,
                args=(group_id, drawn, acted.note),
            )
            if acted.note:
                st.caption("Removed, with its note. Bookmark the group again to get the note back.", width="content")


def _draw_note(group_id: int, drawn: Bookmark | None, bookmark: Bookmark) -> None:
    key = f"note-{group_id}"
    written = st.text_area(
        "Note",
        bookmark.note,
        key=key,
        height=68,
        max_chars=LONGEST_NOTE,
        placeholder="Why this group? Kept when you leave the field.",
        label_visibility="collapsed",
        on_change=_write,
        args=(group_id, drawn, key),
    )
    if clean(written) != bookmark.note:  # the backend was away
        st.button("Keep the note", key=f"keep-{key}", on_click=_write, args=(group_id, drawn, key))
    elif written:
        st.caption(f"kept {ago(bookmark.updated_at)}", width="content")


def _remove(group_id: int, drawn: Bookmark | None) -> None:
    if carried_out(lambda: client().people.remove_bookmark(group_id)):
        st.session_state[_key(group_id)] = _Acted(drawn, None, _acted(group_id, drawn).note)


def _write(group_id: int, drawn: Bookmark | None, key: str) -> None:
    """Keep the note. The browser sends that of a removed bookmark once more, as if it had changed: it stays removed."""
    if _acted(group_id, drawn).now is not None:
        _keep(group_id, drawn, st.session_state[key])


def _keep(group_id: int, drawn: Bookmark | None, note: str) -> None:
    def write() -> None:
        bookmark = client().people.bookmark(group_id, note)
        st.session_state[_key(group_id)] = _Acted(drawn, bookmark, bookmark.note)

    carried_out(write)


def _acted(group_id: int, drawn: Bookmark | None) -> _Acted:
    """What is known here; a page that was drawn anew with another bookmark knows better."""
    acted = st.session_state.get(_key(group_id))
    if isinstance(acted, _Acted) and acted.before == drawn:
        return acted
    return _Acted(drawn, drawn, drawn.note if drawn else "")


def _key(group_id: int) -> str:
    return f"bookmark-made-{group_id}"


@st.fragment
def draw_thumbs(completion_id: int, stored: Thumb | None) -> None:
    """The two thumbs; pressing the pressed one takes it back. Only they are drawn again."""
    key, last = f"thumb-{completion_id}", f"thumb-kept-{completion_id}"
    if key not in st.session_state:  # drawn for the first time since the page was opened
        st.session_state[key] = st.session_state[last] = None if stored is None else _PRESSED[stored]
    st.feedback("thumbs", key=key, on_change=_keep_thumb, args=(completion_id, key, last))


def _keep_thumb(completion_id: int, key: str, last: str) -> None:
    pressed = st.session_state[key]
    thumb = next((thumb for thumb, number in _PRESSED.items() if number == pressed), None)
    if carried_out(lambda: client().people.thumb(completion_id, thumb)):
        st.session_state[last] = pressed
    else:
        st.session_state[key] = st.session_state[last]  # what is shown is what is stored
