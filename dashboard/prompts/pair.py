"""Two draws of one prompt beside each other: what the policy said then, and what it says now."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import streamlit as st

from backend.contract.groups import CompletionRecord, Group, GroupSummary
from dashboard.charts.group import advantage_scale
from dashboard.charts.palette import advantage_colour
from dashboard.completion_text import as_text
from dashboard.components.address import number_in_address, write
from dashboard.components.synced import on_choice, sync
from dashboard.difference import difference, in_words, side_html, words
from dashboard.format import count, number, signed
from dashboard.prompts.draws import describe
from dashboard.session import client, guard, link
from dashboard.status import FINISHED, measured


class Side(NamedTuple):
    """One of the two; its draw and its completion stand in the address under these names."""

    draw: str
    completion: str
    label: str


EARLIER = Side("a", "a_says", "One draw")
LATER = Side("b", "b_says", "Another draw")


def draw_compared(draws: Sequence[GroupSummary]) -> None:
    """Two choosers, the chosen completions, and what differs between them. At first, the first draw and the latest."""
    several = len({draw.run_id for draw in draws}) > 1
    columns = st.columns(2, gap="large")
    chosen = []
    for column, side, default in zip(columns, (EARLIER, LATER), (draws[0], draws[-1]), strict=True):
        with column:
            chosen.append(_draw_side(side, draws, default, several))
    left, right = chosen
    found = difference(words(as_text(left)), words(as_text(right)))
    strongest = advantage_scale([left.advantage, right.advantage])
    for column, completion, runs in zip(columns, chosen, (found.left, found.right), strict=True):
        colour = advantage_colour(completion.advantage or 0.0, strongest)
        with column:
            st.html(side_html(runs, colour=colour, visible=False, full=False))
    st.caption(in_words(found, "word"))


def choose_draw(side: Side, group_id: int) -> None:
    """Put this draw on that side, with its best completion."""
    write(**{side.draw: str(group_id), side.completion: None})


def _draw_side(side: Side, draws: Sequence[GroupSummary], default: GroupSummary, several: bool) -> CompletionRecord:
    """The choosers and the numbers of one side; its completion."""
    known = {draw.id: draw for draw in draws}
    chosen = number_in_address(side.draw)
    sync(side.draw, chosen if chosen in known else default.id)
    pick_draw, pick_completion = st.columns([3, 2], vertical_alignment="bottom")
    group_id = pick_draw.selectbox(
        side.label,
        list(known),
        key=side.draw,
        format_func=lambda id_: describe(known[id_], several),
        on_change=on_choice(side.draw, partial(choose_draw, side)),
    )
    with guard():
        group = client().group(group_id)
    with pick_completion:
        completion = _pick_completion(side, group)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(
            f"reward **{number(completion.reward)}** · A **{signed(completion.advantage)}** · "
            + (
                f"{count(completion.token_count)} tokens · {FINISHED[completion.finish_reason]}"
                if measured(completion)
                else "length not recorded"
            ),
            width="stretch",
        )
        link("group", "Open the group", icon=":material/open_in_full:", id=group.id, tokens=completion.index + 1)
    return completion


def _pick_completion(side: Side, group: Group) -> CompletionRecord:
    """The best one, unless the address names another."""
    members = {completion.index: completion for completion in group.completions}
    scored = [completion for completion in group.completions if completion.reward is not None]
    best = max(scored, key=lambda one: one.reward or 0.0, default=group.completions[0])
    chosen = number_in_address(side.completion)
    sync(side.completion, chosen if chosen in members else best.index)
    index = st.selectbox(
        "Completion",
        list(members),
        key=side.completion,
        format_func=lambda place: (
            f"{place + 1} · {number(members[place].reward)}{' · best' if place == best.index else ''}"
        ),
        on_change=on_choice(side.completion, lambda index: write(**{side.completion: str(index)})),
    )
    return members[index]
