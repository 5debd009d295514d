"""Pages of a list that the backend answers piece by piece: the way from the first page to this one stands in the address."""

import streamlit as st

ROWS = 50
_KEPT = 30  # cursors in the address; further back there is the first page


def cursor(name: str) -> str | None:
    """Where this page begins; None is the first."""
    trail = _trail(name)
    return trail[-1] if trail else None


def first_page(name: str) -> None:
    """Forget the way: what is listed has changed."""
    st.query_params.pop(name, None)


def show_pager(name: str, following: str | None) -> None:
    """First, previous and next; nothing where all fits on one page."""
    trail = _trail(name)
    if not trail and following is None:
        return
    with st.container(horizontal=True, horizontal_alignment="right", key=f"pager-{name}"):
        st.button(
            "First",
            icon=":material/first_page:",
            key=f"{name}-first",
            disabled=not trail,
            on_click=_go,
            args=(name, []),
        )
        st.button(
            "Previous",
            icon=":material/chevron_left:",
            key=f"{name}-previous",
            disabled=not trail,
            on_click=_go,
            args=(name, trail[:-1]),
        )
        st.button(
            "Next",
            icon=":material/chevron_right:",
            key=f"{name}-next",
            disabled=following is None,
            on_click=_go,
            args=(name, [*trail, following]),
        )


def _trail(name: str) -> list[str]:
    return [part for part in st.query_params.get(name, "").split(",") if part]


def _go(name: str, trail: list[str]) -> None:
    if trail:
        st.query_params[name] = ",".join(trail[-_KEPT:])
    else:
        first_page(name)
