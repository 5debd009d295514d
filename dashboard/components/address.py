"""What the address of a page says: which run, group, step and tab. Every view has its address, and Back finds it again."""

from math import ceil, floor

import streamlit as st

OVERVIEW, GROUPS, PROMPTS, SEARCH = "Overview", "Groups", "Prompts", "Search"
_OPEN = "open-groups"


def tab_in_address(tabs: tuple[str, ...]) -> str:
    """The tab that is open, the first where the address names none."""
    return next((tab for tab in tabs if tab.lower() == st.query_params.get("tab")), tabs[0])


def open_tab(tab: str) -> None:
    """Open the tab."""
    st.query_params["tab"] = tab.lower()


def chosen() -> int | None:
    """The step in the address; None follows the newest."""
    return _number(st.query_params.get("step", ""))


def choose(step: int | None, *, then_open: bool = False) -> None:
    """Keep to this step, or follow the newest; `then_open` shows its groups."""
    if step is None:
        st.query_params.pop("step", None)
    else:
        st.query_params["step"] = str(step)
    if then_open:
        open_tab(GROUPS)
        st.session_state[_OPEN] = True


def zoom() -> tuple[int, int] | None:
    """The range of steps that the charts show; None shows the whole run."""
    first, _, last = st.query_params.get("range", "").partition("-")
    low, high = _number(first), _number(last)
    return (low, high) if low is not None and high is not None and low < high else None


def zoom_to(low: float, high: float) -> None:
    """Show this range of steps, at least one step wide."""
    first = max(0, floor(low))
    st.query_params["range"] = f"{first}-{max(ceil(high), first + 1)}"


def zoom_out() -> None:
    """Show the whole run."""
    st.query_params.pop("range", None)


def numbers(name: str, at_most: int) -> list[int]:
    """The whole numbers at `name`, separated by commas; what is not one is left out."""
    known = [_number(part) for part in st.query_params.get(name, "").split(",")]
    return list(dict.fromkeys(number for number in known if number is not None))[:at_most]


def number_in_address(name: str) -> int | None:
    """The whole number at `name`, where there is one."""
    return _number(st.query_params.get(name, ""))


def leave_for_groups() -> None:
    """Draw the whole page again if a click inside a part of it asked for the groups."""
    if st.session_state.pop(_OPEN, False):
        st.rerun()


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
