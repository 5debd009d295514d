"""The completions of a group as cards: side by side to compare them, or stacked to read them."""

from collections.abc import Callable, Mapping
from pathlib import Path

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from backend.contract.base import Json
from backend.contract.groups import CompletionRecord, Group
from dashboard.group.completion_html import GroupLook, TextLook, card_html, look_at, order_of

STYLE = Path(__file__).with_name("group.css")
STACKED_COLUMNS = 100  # letters in a line of a card that has the page's width


def draw_cards(
    group: Group,
    config: Mapping[str, Json],
    *,
    by_advantage: bool,
    visible: bool,
    full: bool = False,
    stacked: bool = False,
    draw_foot: Callable[[CompletionRecord], None] | None = None,
) -> None:
    """All completions of the group; `draw_foot` draws what can be done with one."""
    look = look_at(group, config)
    shown = TextLook(visible, full, STACKED_COLUMNS) if stacked else TextLook(visible, full)
    st.html(STYLE)
    st.html(_edges(look))
    with st.container(key=f"cards-{'stacked' if stacked else 'grid'}-{group.id}"):
        for completion in order_of(group.completions, by_advantage=by_advantage):
            with st.container(border=True, height="stretch", key=f"card-{completion.id}"):
                st.html(card_html(completion, look, shown))
                if draw_foot is not None:
                    with foot(f"card-{completion.id}"):
                        draw_foot(completion)


def foot(key: str) -> DeltaGenerator:
    """A card's last line, of small buttons."""
    return st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"foot-{key}")


def _edges(look: GroupLook) -> str:
    """Each card's left edge in the colour of its advantage."""
    rules = "".join(
        f".st-key-card-{completion.id}, .st-key-opened-{completion.id} {{ border-left: 4px solid {look.colour(completion)}; }}"
        for completion in look.group.completions
    )
    return f"<style>{rules}</style>"
