"""Two completions of a group side by side, with what differs marked. The address says which two.

`diff=1,6` names them by their numbers, `diff=best,worst` by their marks.
"""

from functools import partial
from typing import Literal, NamedTuple

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from backend.contract.groups import CompletionRecord, Group
from dashboard.algorithm.rewards import extremes
from dashboard.components.address import read, write
from dashboard.components.synced import on_choice, sync
from dashboard.difference import difference, in_words, side_html, words
from dashboard.format import signed
from dashboard.group.cards import GroupLook
from dashboard.session import client, guard

BEST, WORST = "best", "worst"
DEFAULT = f"{BEST},{WORST}"


def pair_in(written: str, group: Group) -> tuple[int, int]:
    """The indices of the two. A part that names no completion means the best or the worst; if all are equal, the first or the last."""
    sides = written.split(",")
    best, worst = _ends(group)
    left, right = sides if len(sides) == 2 else (BEST, WORST)
    return _index(left, group, best, best, worst), _index(right, group, worst, best, worst)


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


def _index(written: str, group: Group, default: int, best: int, worst: int) -> int:
    written = written.strip()
    if written in (BEST, WORST):
        return best if written == BEST else worst
    known = {str(completion.index + 1): completion.index for completion in group.completions}
    return known.get(written, default)


PARAMETER = "diff"
Unit = Literal["word", "token"]


def draw_difference(group: Group, look: GroupLook, *, visible: bool, full: bool) -> None:
    """Two selectors, by default the best and the worst; below them both texts."""
    left, right = pair_in(read(PARAMETER, DEFAULT), group)
    by_index = {completion.index: completion for completion in group.completions}
    sync("diff-left", left)
    sync("diff-right", right)
    one, swap, other, unit_at = st.columns([5.2, 0.8, 3.2, 2.8], vertical_alignment="bottom")
    for column, label, key, choose in (
        (one, "Compare", "diff-left", partial(_put, right=right)),
        (other, "with", "diff-right", partial(_put, left)),
    ):
        column.selectbox(
            label,
            list(by_index),
            format_func=lambda index: _label(by_index[index], look),
            key=key,
            on_change=on_choice(key, choose),
        )
    swap.button("", icon=":material/swap_horiz:", key="diff-swap", help="Swap sides", on_click=_put, args=(right, left))
    unit = _unit(unit_at, by_index[left], by_index[right])
    colours = look.colour(by_index[left]), look.colour(by_index[right])
    drawn = _drawn(
        _pieces(by_index[left], unit), _pieces(by_index[right], unit), unit, colours, visible=visible, full=full
    )
    st.caption(drawn.sentence)
    st.html(f'<div class="two-sides">{drawn.left}{drawn.right}</div>')


def _label(completion: CompletionRecord, look: GroupLook) -> str:
    mark = look.marks.get(completion.index)
    advantage = "" if completion.advantage is None else f" · A {signed(completion.advantage)}"
    return f"{completion.index + 1}{f' · {mark}' if mark else ''}{advantage}"


def _put(left: int, right: int) -> None:
    write(**{PARAMETER: written_as(left, right)})


def _unit(place: DeltaGenerator, left: CompletionRecord, right: CompletionRecord) -> Unit:
    """Words; or tokens, if both completions have theirs and a person chooses them."""
    if not (left.has_trace and right.has_trace):
        return "word"
    chosen = place.segmented_control(
        "by",
        ("word", "token"),
        default="word",
        required=True,
        key="diff-by",
        bind="query-params",
        label_visibility="collapsed",
    )
    return "token" if chosen == "token" else "word"


class _Drawn(NamedTuple):
    """Both sides as HTML, and the sentence above them."""

    left: str
    right: str
    sentence: str


@st.cache_data(ttl=600, max_entries=32, show_spinner=False)
def _drawn(
    left: list[str], right: list[str], unit: Unit, colours: tuple[str, str], *, visible: bool, full: bool
) -> _Drawn:
    found = difference(left, right)
    return _Drawn(
        side_html(found.left, colour=colours[0], visible=visible, full=full),
        side_html(found.right, colour=colours[1], visible=visible, full=full),
        in_words(found, unit),
    )


def _pieces(completion: CompletionRecord, unit: Unit) -> list[str]:
    return _tokens(completion.id) if unit == "token" else words(completion.text)


@st.cache_data(ttl=600, max_entries=32, show_spinner=False)
def _tokens(completion_id: int) -> list[str]:
    with guard():
        return client().tokens(completion_id).texts
