"""The search of a run: the fields that say which completions, what was found, and the way to each group."""

from collections.abc import Iterator

import streamlit as st

from backend.contract.groups import FinishReason, GroupState
from backend.contract.inspection import CompletionHit
from backend.contract.records import Page, Run
from dashboard.components.address import names
from dashboard.components.keys import listen
from dashboard.components.listing import (
    ROWS,
    choice_field,
    cursor,
    first_page,
    nothing,
    order_field,
    show_pager,
    words_field,
)
from dashboard.components.table import Column, pick
from dashboard.format import counted, number, signed
from dashboard.group.rows import WORDS
from dashboard.leaving import go
from dashboard.session import client, guard
from dashboard.status import FINISHED
from dashboard.text import one_line

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
COLUMNS = {
    "step": Column[CompletionHit]("step", lambda hit: hit.step, 55, kind="number"),
    "where": Column("group · completion", lambda hit: f"{hit.group_index + 1} · {hit.index + 1}", 120),
    "state": Column("state", lambda hit: WORDS[hit.state], 70),
    "reward": Column("reward", lambda hit: number(hit.reward), 65, kind="figure"),
    "advantage": Column("advantage", lambda hit: signed(hit.advantage), 80, kind="figure"),
    "tokens": Column("tokens", lambda hit: hit.token_count or (None if hit.excerpt else 0), 65, kind="number"),
    "ended": Column(
        "ended", lambda hit: FINISHED[hit.finish_reason] if hit.token_count or not hit.excerpt else "not recorded", 130
    ),
    "prompt": Column("prompt", lambda hit: one_line(hit.prompt), 200),
    "completion": Column("completion", lambda hit: one_line(hit.excerpt), "large"),
}
_FINISHED: dict[str, FinishReason] = {word: reason for reason, word in FINISHED.items()}
_STATES: dict[str, GroupState] = {word: state for state, word in WORDS.items()}
# The range in the query: its label, its name in the address, and whether it is of whole numbers.
_RANGES = {
    "reward": ("Reward", "reward", False),
    "advantage": ("Advantage", "advantage", False),
    "tokens": ("Tokens", "tokens", True),
    "step": ("Steps", "steps", True),
}
_ENDS = {"min": "from", "max": "to"}
_NARROWING = ("group_state", "finish", *(f"{name}_{end}" for _, name, _ in _RANGES.values() for end in _ENDS.values()))
FIELDS = ("find", "hit_order", PAGES, *_NARROWING)  # the names in the address that make up a search


def draw_search(run: Run) -> None:
    """The fields, and a page of completions that fit; a click on a row opens the group with that completion."""
    listen({"/": "find"})
    page = _fetch(run.id)
    if not page.items and not run.progress.step:
        st.info("No completions yet. They can be searched after the first step.", icon=":material/hourglass_empty:")
        return
    if not page.items and not set(FIELDS) & set(names()):
        st.info("No completions were recorded.", icon=":material/search_off:")
        return
    if not page.items:
        asked = set(names())
        shorter = "Search for a shorter piece: a text is found as it stands, with its spaces and signs."
        ways = [shorter] if "find" in asked else []
        ways += ["Widen the ranges, or choose any state and any end."] if asked & set(_NARROWING) else []
        words = " ".join(["No completion fits.", *ways])
        nothing(words, show_all="Show all completions", clear=_clear)
        return
    found = f"{'More than ' if page.next_cursor else ''}{counted(len(page.items), 'completion')}"
    st.markdown(f"**{found}** :gray[:small[· click a line to open its group with that completion]]")
    hit = pick(page.items, COLUMNS, key=f"found-{run.id}")
    if hit is not None:
        go("group", id=hit.group_id, tokens=hit.index + 1)
    show_pager(PAGES, page.next_cursor)


def _fetch(run_id: int) -> Page[CompletionHit]:
    """Draw the fields, in two lines; the page of completions that fit them."""
    words, state, finish, sort = st.columns([4, 1.5, 1.5, 2], vertical_alignment="bottom")
    with words:
        term = words_field(
            "Search in completions",
            "find",
            PAGES,
            placeholder="a text in completions",
            help="Press / to jump here. Finds completions that contain this text, in capital or small letters of any script, "
            "however its accents are composed.",
        )
    with state:
        in_state = choice_field("Group state", "group_state", PAGES, list(_STATES))
    with finish:
        ended = choice_field("How it ended", "finish", PAGES, list(_FINISHED))
    with sort:
        order = order_field("hit_order", PAGES, SORTS)
    ranges = dict(_draw_ranges())
    with guard():
        return client().completions(
            run_id,
            search=term,
            state=_STATES[in_state] if in_state else None,
            finish_reason=_FINISHED[ended] if ended else None,
            sort=order,
            limit=ROWS,
            cursor=cursor(PAGES),
            **ranges,
        )


def _draw_ranges() -> Iterator[tuple[str, float | None]]:
    """The inclusive ends of each range, as the query names them; None leaves an end open."""
    cells = iter(st.columns(2 * len(_RANGES), vertical_alignment="bottom"))
    for field, (label, name, whole) in _RANGES.items():
        for end, word in _ENDS.items():
            value: float | None = next(cells).number_input(
                f"{label} {word}",
                min_value=0 if whole else None,
                value=None,
                step=1 if whole else 0.1,
                format=None if whole else "%g",
                key=f"{name}_{word}",
                bind="query-params",
                placeholder="any",
                on_change=first_page,
                args=(PAGES,),
            )
            yield f"{field}_{end}", value


def _clear() -> None:
    """Let every completion through again, in the same order."""
    st.session_state["find"] = ""
    for name in _NARROWING:
        st.session_state[name] = None
    first_page(PAGES)
