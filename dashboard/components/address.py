"""What the address of a page says: which run, group, step and tab. Every view has its address, and Back finds it again.

Streamlit, told to leave a page, first writes the next page's query behind the page it leaves, and the browser keeps that
address for its Back button: `/run?id=<group>&…`, `/run?clone=<run>`. Such an address is recognised here by what it holds:
the way to a group carries `run`, the way to a run carries `tab`, and neither page else has a use for the other's. What
widgets keep in the address cannot go along (Streamlit refuses it); the session holds it until somebody comes back.
"""

from collections.abc import Iterable
from math import ceil, floor
from typing import NoReturn

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dashboard.session import PageName, Query, go

OVERVIEW, GROUPS, PROMPTS, SEARCH = "Overview", "Groups", "Prompts", "Search"
_OPEN = "open-groups"
_LEFT = "left-with"


def run_in_address() -> int | None:
    """The run that is looked at."""
    query = st.query_params
    if "run" in query:
        return _number(query["run"])
    return _own_or_last("own-run", _number(query.get("id", "")))


def group_in_address() -> int | None:
    """The group that is looked at."""
    query = st.query_params
    way_to_a_run = "tab" in query and "run" not in query
    return _own_or_last("own-group", None if way_to_a_run else _number(query.get("id", "")))


def leave_run(run_id: int, tab: str, page: PageName, *, filters: Iterable[str], **query: Query) -> NoReturn:
    """Open another page from a run's tab; the widgets named by `filters` are as they were when the browser goes back."""
    st.session_state[_LEFT] = {name: st.session_state[name] for name in filters if name in st.session_state}
    go(page, run=run_id, tab=tab.lower(), **query)


def come_back() -> None:
    """Set the widgets of a run's page to what they were when it was left."""
    left = st.session_state.get(_LEFT)
    if left is None:
        return
    if "run" in st.query_params:
        st.session_state.update(left)
        context = get_script_run_ctx()
        if context is not None and context.is_history_navigation:
            st.rerun()  # in such a run the address alone counts for widgets; there may be several
    del st.session_state[_LEFT]


def _own_or_last(key: str, own: int | None) -> int | None:
    """What the address names; where it is another page's, what this session looked at last on this page."""
    if own is not None:
        st.session_state[key] = own
    last: int | None = st.session_state.get(key)
    return last


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
