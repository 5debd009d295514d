"""What is searched for among a run's completions; all of it is in the address."""

from collections.abc import Iterator

import streamlit as st

from backend.contract.groups import FinishReason, GroupState
from backend.contract.inspection import CompletionHit
from backend.contract.records import Page
from dashboard.components.pager import ROWS, cursor, first_page
from dashboard.group.rows import WORDS
from dashboard.session import client, guard
from dashboard.status import FINISHED

PAGES = "found"  # the name of the pages in the address
SORTS = {
    "earliest first": "step",
    "latest first": "-step",
    "highest reward first": "-reward",
    "lowest reward first": "reward",
    "most reinforced first": "-advantage",
    "most discouraged first": "advantage",
    "longest first": "-tokens",
    "shortest first": "tokens",
}
_FINISHED: dict[str, FinishReason] = {word: reason for reason, word in FINISHED.items()}
_STATES: dict[str, GroupState] = {word: state for state, word in WORDS.items()}
_RANGES = {"reward": "Reward", "advantage": "Advantage", "tokens": "Tokens", "step": "Steps"}  # as the query names them
_WHOLE = ("tokens", "step")
_ENDS = {"min": "from", "max": "to"}
_PAUSE = "300ms"  # in the typing before a search is sent; while one is under way, no other is


def fetch(run_id: int) -> Page[CompletionHit]:
    """Draw the fields, in two lines; the page of completions that fit them."""
    words, state, finish, sort = st.columns([4, 1.5, 1.5, 2], vertical_alignment="bottom")
    with words:
        said = st.text_input(
            "Search in completions",
            key="find",
            type="search",
            live=_PAUSE,
            bind="query-params",
            placeholder="a text in completions",
            help="Key /. The completion contains just this text; capitals of A to Z do not matter.",
            icon=":material/search:",
            on_change=_from_the_start,
        )
    with state:
        in_state = _choice("Group is", "group_state", list(_STATES))
    with finish:
        ended = _choice("Ended", "finish", list(_FINISHED))
    with sort:
        order = st.selectbox("Order", list(SORTS), key="hit_order", bind="query-params", on_change=_from_the_start)
    ranges = dict(_draw_ranges())
    with guard():
        return client().completions(
            run_id,
            search=said.strip() or None,
            state=_STATES[in_state] if in_state else None,
            finish_reason=_FINISHED[ended] if ended else None,
            sort=SORTS[order],
            limit=ROWS,
            cursor=cursor(PAGES),
            **ranges,
        )


def fields() -> list[str]:
    """The names in the address that make up a search."""
    return ["find", "hit_order", PAGES, *_narrowing()]


def clear() -> None:
    """Let every completion through again, in the same order."""
    st.session_state["find"] = ""
    for name in _narrowing():
        st.session_state[name] = None
    first_page(PAGES)


def _narrowing() -> list[str]:
    return ["group_state", "finish", *(_key(name, word) for name in _RANGES for word in _ENDS.values())]


def _draw_ranges() -> Iterator[tuple[str, float | None]]:
    """The inclusive ends of each range, as the query names them; None leaves an end open."""
    cells = st.columns(2 * len(_RANGES), vertical_alignment="bottom")
    for place, (name, label) in enumerate(_RANGES.items()):
        for half, (end, word) in enumerate(_ENDS.items()):
            with cells[2 * place + half]:
                yield f"{name}_{end}", _draw_end(name, f"{label} {word}", _key(name, word))


def _draw_end(name: str, label: str, key: str) -> float | None:
    value: float | None
    if name in _WHOLE:
        value = st.number_input(
            label,
            min_value=0,
            value=None,
            step=1,
            key=key,
            bind="query-params",
            placeholder="any",
            on_change=_from_the_start,
        )
    else:
        value = st.number_input(
            label,
            value=None,
            step=0.1,
            format="%g",
            key=key,
            bind="query-params",
            placeholder="any",
            on_change=_from_the_start,
        )
    return value


def _choice(label: str, key: str, options: list[str]) -> str | None:
    return st.selectbox(
        label, options, index=None, key=key, bind="query-params", placeholder="any", on_change=_from_the_start
    )


def _key(name: str, word: str) -> str:
    """The end's name in the address: `reward_from`, `steps_to`."""
    return f"{'steps' if name == 'step' else name}_{word}"


def _from_the_start() -> None:
    first_page(PAGES)
