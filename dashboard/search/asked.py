"""What is searched for among a run's completions; all of it is in the address."""

from collections.abc import Iterator
from dataclasses import dataclass

import streamlit as st

from backend.contract.groups import FinishReason, GroupState
from backend.contract.inspection import CompletionHit
from backend.contract.records import Page
from dashboard.components.pager import ROWS, cursor, first_page
from dashboard.group.rows import WORDS
from dashboard.session import client
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
_RANGES = {"reward": "Reward", "advantage": "Advantage", "tokens": "Tokens", "steps": "Steps"}
_WHOLE = ("tokens", "steps")
_PAUSE = "300ms"  # in the typing before a search is sent; while one is under way, no other is


@dataclass(frozen=True)
class Asked:
    """Inclusive ranges; None leaves an end open, and whatever is None lets everything through."""

    words: str | None
    state: GroupState | None
    finish: FinishReason | None
    reward: tuple[float | None, float | None]
    advantage: tuple[float | None, float | None]
    tokens: tuple[int | None, int | None]
    steps: tuple[int | None, int | None]
    sort: str

    def fetch(self, run_id: int) -> Page[CompletionHit]:
        """The page that the address names."""
        return client().completions(
            run_id,
            search=self.words,
            state=self.state,
            finish_reason=self.finish,
            reward=self.reward,
            advantage=self.advantage,
            tokens=self.tokens,
            steps=self.steps,
            sort=self.sort,
            limit=ROWS,
            cursor=cursor(PAGES),
        )


def ask() -> Asked:
    """The fields, in two lines."""
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
    ends = list(_draw_ranges())
    return Asked(
        words=said.strip() or None,
        state=_STATES[in_state] if in_state else None,
        finish=_FINISHED[ended] if ended else None,
        reward=(ends[0], ends[1]),
        advantage=(ends[2], ends[3]),
        tokens=(_whole(ends[4]), _whole(ends[5])),
        steps=(_whole(ends[6]), _whole(ends[7])),
        sort=SORTS[order],
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
    return ["group_state", "finish", *(f"{name}_{end}" for name in _RANGES for end in ("from", "to"))]


def _draw_ranges() -> Iterator[float | None]:
    """From and to of each range."""
    cells = st.columns(2 * len(_RANGES), vertical_alignment="bottom")
    for place, (name, label) in enumerate(_RANGES.items()):
        for half, end in enumerate(("from", "to")):
            with cells[2 * place + half]:
                yield _draw_end(name, f"{label} {end}", f"{name}_{end}")


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


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _from_the_start() -> None:
    first_page(PAGES)
