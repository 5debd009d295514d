"""The completion that the address opens, its account beside its tokens; and what can be done with a completion."""

from collections.abc import Callable
from functools import partial

import streamlit as st

from backend.contract.groups import CompletionRecord, Group
from backend.contract.records import Run
from dashboard.components.address import write
from dashboard.group.cards import GroupLook, TextLook, account_html, foot, text_html
from dashboard.group.pair import PARAMETER, opposite, written_as
from dashboard.group.path import open_completion
from dashboard.people.marks import draw_thumbs
from dashboard.token_view.component import draw_tokens

PANEL = "panel"
DIFFERENCE = "difference"
JUDGED_ON_CARDS = 16  # completions; in a larger group the thumbs stand at the one that is opened


def draw_opened(
    run: Run, group: Group, completion: CompletionRecord, look: GroupLook, *, visible: bool, thumbs: bool
) -> None:
    """Above the cards, so that ← and → change it in its place. The tokens are its text; without them, that stands whole."""
    with st.container(border=True, key=f"opened-{completion.id}"):
        account, text = st.columns([1, 3], gap="medium")
        with account:
            st.html(account_html(completion, look))
            with foot(f"opened-{completion.id}"):
                _button("close", ":material/close:", f"close-{completion.id}", partial(open_completion, None))
                _draw_compare(group, completion, f"opened-{completion.id}")
                if thumbs:
                    draw_thumbs(completion)
        with text:
            if not completion.has_trace:
                st.html(text_html(completion, TextLook(visible, full=True)))
            draw_tokens(run, group, completion.index)


def draw_foot(group: Group, completion: CompletionRecord) -> None:
    """Read a card's completion token by token, hold it against another, judge it."""
    word, icon = ("tokens", ":material/segment:") if completion.has_trace else ("open", ":material/open_in_full:")
    _button(word, icon, f"open-{completion.id}", partial(open_completion, completion.index))
    _draw_compare(group, completion, str(completion.id))
    if len(group.completions) <= JUDGED_ON_CARDS:
        draw_thumbs(completion)


def _draw_compare(group: Group, completion: CompletionRecord, key: str) -> None:
    if len(group.completions) > 1:
        other = opposite(completion.index, group)
        compare = partial(_compare, completion.index, other)
        _button(f"diff with {other + 1}", ":material/difference:", f"compare-{key}", compare)


def _compare(left: int, right: int) -> None:
    write(**{PARAMETER: written_as(left, right)})
    st.session_state[PANEL] = DIFFERENCE


def _button(label: str, icon: str, key: str, on_click: Callable[[], None]) -> None:
    st.button(label, icon=icon, key=key, type="tertiary", on_click=on_click)
