"""What the address of a page says: which run, group, step and tab. Every view has its address, and Back finds it again."""

from math import ceil, floor
from time import monotonic

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

OVERVIEW, GROUPS, PROMPTS, SEARCH = "Overview", "Groups", "Prompts", "Search"
_WRITTEN = "address-written"  # by callbacks: name -> value and time
_PAGE = "address-page"  # on which page
_HEARD = 2.0  # seconds after which a browser has long heard of it


def read(name: str, default: str = "") -> str:
    """What the address says, the default where it says nothing."""
    written = _on_its_way()
    if name in written:
        _put(name, written[name])
    return st.query_params.get(name, default)


def write(**values: str | None) -> None:
    """Into the address, from a callback; None takes the name out of it.

    The browser sends its address with all that it asks. A tick of the page may go before a click's own request, and bring what
    was clicked, or right behind it: what the callback writes, the later of the two would take back, which left before the
    browser heard of it. So what was written holds for a moment, unless the person goes back or elsewhere.
    """
    _on_its_way()  # of this page alone
    st.session_state[_WRITTEN] |= {name: (value, monotonic()) for name, value in values.items()}
    for name, value in values.items():
        _put(name, value)


def browser_knows() -> bool:
    """Whether the browser knew its address when it asked. Where not, a tick must not draw the whole page by it."""
    return all(st.query_params.get(name) == value for name, value in _on_its_way().items())


def just_written() -> bool:
    """Whether a callback wrote into this page's address a moment ago."""
    return bool(_on_its_way())


def _on_its_way() -> dict[str, str | None]:
    """What was written a moment ago, on this page."""
    context = get_script_run_ctx()
    page = context and (context.page_script_hash, st.query_params.get("id"))
    if (
        _WRITTEN not in st.session_state
        or st.session_state[_PAGE] != page
        or (context and context.is_history_navigation)
    ):
        st.session_state[_PAGE] = page
        st.session_state[_WRITTEN] = {}
    written: dict[str, tuple[str | None, float]] = st.session_state[_WRITTEN]
    return {name: value for name, (value, when) in written.items() if monotonic() - when < _HEARD}


def tab_in_address(tabs: tuple[str, ...]) -> str:
    """The tab that is open, the first where the address names none."""
    asked = read("tab")
    return next((tab for tab in tabs if tab.lower() == asked), tabs[0])


def open_tab(tab: str) -> None:
    """Open the tab."""
    write(tab=tab.lower())


def chosen() -> int | None:
    """The step in the address; None follows the newest."""
    return _number(read("step"))


def choose(step: int | None, *, then_open: bool = False) -> None:
    """Keep to this step, or follow the newest; `then_open` shows its groups."""
    write(step=None if step is None else str(step))
    if then_open:
        open_tab(GROUPS)


def zoom() -> tuple[int, int] | None:
    """The range of steps that the charts show; None shows the whole run."""
    first, _, last = read("range").partition("-")
    low, high = _number(first), _number(last)
    return (low, high) if low is not None and high is not None and low < high else None


def zoom_to(low: float, high: float) -> None:
    """Show this range of steps, at least one step wide."""
    first = max(0, floor(low))
    write(range=f"{first}-{max(ceil(high), first + 1)}")


def zoom_out() -> None:
    """Show the whole run."""
    write(range=None)


def numbers(name: str, at_most: int) -> list[int]:
    """The whole numbers at `name`, separated by commas; what is not one is left out."""
    known = [_number(part) for part in read(name).split(",")]
    return list(dict.fromkeys(number for number in known if number is not None))[:at_most]


def number_in_address(name: str) -> int | None:
    """The whole number at `name`, where there is one."""
    return _number(read(name))


def _put(name: str, value: str | None) -> None:
    if value is None:
        st.query_params.pop(name, None)
    else:
        st.query_params[name] = value  # also where it stands: a run that was broken off may not have told the browser


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
