"""What the address of a page says: which run, group, step and tab. Every view has its address, and Back finds it again."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor
from time import monotonic

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

OVERVIEW, GROUPS, PROMPTS, SEARCH = "Overview", "Groups", "Prompts", "Search"
_WRITTEN = "address-written"  # by the page itself, by name
_PAGE = "address-page"  # on which page
_DRAWN = "address-drawn"  # the page that was drawn last, and what its address named
# Seconds for which it holds: past being heard of, since who chooses and takes back at once seems to know of both; and not for ever,
# since an address that is too long is never heard of.
_AT_LEAST, _AT_MOST = 2.0, 30.0
Value = str | int | list[str] | None
Place = tuple[str, str | None]


@dataclass
class _Written:
    """What the page wrote at one name, as the address has it."""

    texts: list[str]
    before: set[tuple[str, ...]]  # what a browser says that has not heard of it yet
    when: float
    heard: bool = False


def read(name: str, default: str = "") -> str:
    """What the address says, and the default if it says nothing."""
    _hold(name)
    return st.query_params.get(name, default)


def read_all(name: str) -> list[str]:
    """Every value of a name that the address may hold several times."""
    _hold(name)
    return st.query_params.get_all(name)


def number_in_address(name: str) -> int | None:
    """The whole number at `name`, if there is one."""
    return whole(read(name))


def numbers(name: str, at_most: int) -> list[int]:
    """The whole numbers at `name`, separated by commas; what is not one is left out."""
    known = [whole(part) for part in read(name).split(",")]
    return list(dict.fromkeys(number for number in known if number is not None))[:at_most]


def names() -> list[str]:
    """Every name in the address."""
    return list(st.query_params)


def write(**values: Value) -> None:
    """Put values into the address; None takes a name out of it.

    The browser sends its address with every request. A request that it sent before it saw the new address would overwrite what
    was written. So what was written holds until the browser names it, unless the person goes back or to another page.
    """
    _put(_keep(values))


def write_only(**values: Value) -> None:
    """Make the address say this and nothing else."""
    kept = _keep(dict.fromkeys(names()) | values)
    st.query_params.from_dict(_present(kept))


def repeat() -> None:
    """Send the browser its address again, if an answer to an earlier choice may still be on its way there."""
    st.query_params.update({})


def follow_link() -> None:
    """Give the browser the address of a link that led from one run to another: Streamlit changes it only along with the page."""
    page, shown = here = place()
    page_before, shown_before = st.session_state.get(_DRAWN, here)
    st.session_state[_DRAWN] = here
    if page == page_before and shown != shown_before and not by_history():
        repeat()


def place() -> Place:
    """The page that is being drawn, and the id in its address."""
    context = get_script_run_ctx()
    return context.page_script_hash if context else "", st.query_params.get("id")


def by_history() -> bool:
    """Whether the browser asked for the page by its way back or forth."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def browser_knows() -> bool:
    """Whether the browser knew its address when it asked. If not, a tick must not draw the whole page from it."""
    return all(st.query_params.get_all(name) == value for name, value in just_written().items())


def listen() -> None:
    """Note what the browser has heard of, so that a link to the same page is soon free; send again what it should know by now.

    Called before the page's widgets are drawn: what one of them is bound to is its own.
    """
    held, written = just_written(), st.session_state[_WRITTEN]
    if (context := get_script_run_ctx()) is None:
        return
    with context.session_state.query_params() as address:
        late = [name for name in held if not written[name].heard and monotonic() - written[name].when > _AT_LEAST]
        lost = {name: held[name] for name in late if not address.is_bound(name)}
    _put(lost)


def just_written() -> dict[str, list[str]]:
    """What this page wrote into its address and the browser may still not know, by name."""
    page = place()
    if _WRITTEN not in st.session_state or st.session_state[_PAGE] != page or by_history():
        st.session_state[_PAGE] = page
        st.session_state[_WRITTEN] = {}
    written: dict[str, _Written] = st.session_state[_WRITTEN]
    for name in [name for name, entry in written.items() if not _holds(name, entry)]:
        del written[name]
    return {name: entry.texts for name, entry in written.items()}


def tab_in_address(tabs: tuple[str, ...]) -> str:
    """The tab that is open; the first if the address names none."""
    asked = read("tab")
    return next((tab for tab in tabs if tab.lower() == asked), tabs[0])


def open_tab(tab: str) -> None:
    """Open the tab."""
    write(tab=tab.lower())


def chosen() -> int | None:
    """The step in the address; None follows the newest."""
    return whole(read("step"))


def choose(step: int | None, *, then_open: bool = False) -> None:
    """Keep to this step, or follow the newest; `then_open` shows its groups."""
    write(step=step)
    if then_open:
        open_tab(GROUPS)


def zoom() -> tuple[int, int] | None:
    """The range of steps that the charts show; None shows the whole run."""
    first, _, last = read("range").partition("-")
    low, high = whole(first), whole(last)
    return (low, high) if low is not None and high is not None and low < high else None


def zoom_to(low: float, high: float) -> None:
    """Show this range of steps, at least one step wide."""
    first = max(0, floor(low))
    write(range=f"{first}-{max(ceil(high), first + 1)}")


def zoom_out() -> None:
    """Show the whole run."""
    write(range=None)


def whole(text: str) -> int | None:
    """The text as a whole number that a database can hold, if it is one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def shown_at_once(name: str, at_once: int) -> int:
    """How many entries of a long list to show: those that come at once, or as many as `show_more` has asked for since."""
    return max(at_once, number_in_address(name) or 0)


def show_more(name: str, at_once: int) -> None:
    """Show that many more entries."""
    write(**{name: shown_at_once(name, at_once) + at_once})


def _holds(name: str, entry: _Written) -> bool:
    """Whether it holds against what the browser asks for."""
    asked = _asked(name)
    entry.heard |= asked == entry.texts
    chosen_since = asked != entry.texts and tuple(asked) not in entry.before
    return not chosen_since and monotonic() - entry.when < (_AT_LEAST if entry.heard else _AT_MOST)


def _asked(name: str) -> list[str]:
    """What the browser's own address said at the name when it sent this request."""
    if (context := get_script_run_ctx()) is None:
        return []
    with context.session_state.query_params() as address:
        return _texts(address.get_initial_value(name))


def _keep(values: Mapping[str, Value]) -> dict[str, list[str]]:
    """Note what is written, and when."""
    just_written()  # forgets what another page wrote
    written: dict[str, _Written] = st.session_state[_WRITTEN]
    found = {name: _texts(value) for name, value in values.items()}
    for name, texts in found.items():
        before = {tuple(_asked(name))}
        if name in written:
            before |= {tuple(written[name].texts), *written[name].before}
        written[name] = _Written(texts, before, monotonic())
    return found


def _texts(value: Value) -> list[str]:
    if value is None:
        return []
    return value if isinstance(value, list) else [str(value)]


def _hold(name: str) -> None:
    if name in (written := just_written()):
        _put({name: written[name]})


def _put(values: dict[str, list[str]]) -> None:
    for name in [name for name, texts in values.items() if not texts]:
        st.query_params.pop(name, None)
    # Also what stands there already: an interrupted script run may not have reached the browser. But nothing for a name that was not
    # there: the browser would take the address as it is before this run's bound widgets have written theirs, and Back would stop at it.
    if present := _present(values):
        st.query_params.update(present)


def _present(values: Mapping[str, list[str]]) -> dict[str, str | list[str]]:
    """The names that have a value; a widget that is bound to the name does not take a single value for a list."""
    return {name: texts[0] if len(texts) == 1 else texts for name, texts in values.items() if texts}
