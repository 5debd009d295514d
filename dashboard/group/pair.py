"""Two completions of a group side by side, with what differs marked. The address says which two.

`diff=1,6` names them by their numbers, `diff=best,worst` by their marks.
"""

from functools import partial

import streamlit as st

from backend.contract.groups import CompletionRecord, Group
from dashboard.algorithm.rewards import extremes
from dashboard.completion_text import as_text
from dashboard.components.address import read, write
from dashboard.components.synced import on_choice, one_of, sync
from dashboard.difference import difference, in_words, side_html, words
from dashboard.format import signed
from dashboard.group.cards import GroupLook
from dashboard.session import client, guard

BEST, WORST = "best", "worst"
DEFAULT = f"{BEST},{WORST}"


def pair_in(written: str, group: Group) -> tuple[int, int]:
    """The indices of the two. A part that names no completion means the best or the worst; if all are equal, the first or the last."""
    best, worst = _ends(group)
    known = {BEST: best, WORST: worst} | {str(one.index + 1): one.index for one in group.completions}
    sides = written.split(",")
    left, right = sides if len(sides) == 2 else (BEST, WORST)
    return known.get(left.strip(), best), known.get(right.strip(), worst)


def written_as(left: int, right: int) -> str:
    """The two as the address has them, counted from 1 like the cards."""
    return f"{left + 1},{right + 1}"


def opposite(index: int, group: Group) -> int:
    """The completion to compare with first: the best one, or the worst for the best itself."""
    best, worst = _ends(group)
    return worst if index == best else best


def _ends(group: Group) -> tuple[int, int]:
    marks = {mark: index for index, mark in extremes(group).items()}
    indices = [completion.index for completion in group.completions]
    return marks.get(BEST, indices[0]), marks.get(WORST, indices[-1])


PARAMETER = "diff"


def draw_difference(group: Group, look: GroupLook, *, visible: bool, full: bool) -> None:
    """Two selectors, by default the best and the worst; below them both texts."""
    left, right = pair_in(read(PARAMETER, DEFAULT), group)
    by_index = {completion.index: completion for completion in group.completions}
    sync("diff-left", left)
    sync("diff-right", right)
    one, swap, other, unit_at = st.columns([5.2, 0.8, 3.2, 2.8], vertical_alignment="bottom")
    for column, label, key, choose in (
        (one, "Compare", "diff-left", partial(show_pair, right=right)),
        (other, "with", "diff-right", partial(show_pair, left)),
    ):
        column.selectbox(
            label,
            list(by_index),
            format_func=lambda index: _label(by_index[index], look),
            key=key,
            on_change=on_choice(key, choose),
        )
    swap.button(
        "", icon=":material/swap_horiz:", key="diff-swap", help="Swap sides", on_click=show_pair, args=(right, left)
    )
    sides, unit = (by_index[left], by_index[right]), "word"
    if all(one.has_trace for one in sides):
        with unit_at:
            unit = one_of("by", ("word", "token"), key="diff-by")
    one_side, other_side = (_tokens(one.id) if unit == "token" else words(as_text(one)) for one in sides)
    colours = look.colour(sides[0]), look.colour(sides[1])
    sentence, html = _drawn(one_side, other_side, unit, colours, visible=visible, full=full)
    st.caption(sentence)
    st.html(html)


def _label(completion: CompletionRecord, look: GroupLook) -> str:
    mark = look.marks.get(completion.index)
    advantage = "" if completion.advantage is None else f" · A {signed(completion.advantage)}"
    return f"{completion.index + 1}{f' · {mark}' if mark else ''}{advantage}"


def show_pair(left: int, right: int) -> None:
    """Put these two beside each other."""
    write(**{PARAMETER: written_as(left, right)})


@st.cache_data(ttl=600, max_entries=32, show_spinner=False)
def _drawn(
    left: list[str], right: list[str], unit: str, colours: tuple[str, str], *, visible: bool, full: bool
) -> tuple[str, str]:
    """A sentence, and both sides below it as HTML."""
    found = difference(left, right)
    one, other = (
        side_html(runs, colour=colour, visible=visible, full=full)
        for runs, colour in zip((found.left, found.right), colours, strict=True)
    )
    return in_words(found, unit), f'<div class="two-sides">{one}{other}</div>'


@st.cache_data(ttl=600, max_entries=32, show_spinner=False)
def _tokens(completion_id: int) -> list[str]:
    with guard():
        return client().tokens(completion_id).texts
