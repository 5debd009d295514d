"""One group: why the policy moved."""

from collections.abc import Callable
from functools import partial

import streamlit as st

from backend.contract.groups import CompletionRecord, Group
from backend.contract.records import Run
from dashboard.completion_text import TextLook, draw_rendered, text_html
from dashboard.components.address import number_in_address, read
from dashboard.components.synced import one_of
from dashboard.format import MISSING
from dashboard.group.cards import STYLE, GroupLook, account_html, draw_cards, equal_ones, foot, look_at, order_of
from dashboard.group.numbers import draw_numbers, draw_strip, draw_table
from dashboard.group.pair import PARAMETER, draw_difference, opposite, show_pair
from dashboard.group.path import draw_path, follow_to_step, open_completion, opened_completion
from dashboard.people.agreement import WHICH
from dashboard.people.choices import draw_choices
from dashboard.people.marks import draw_bookmark, draw_thumbs
from dashboard.replay.ask import as_replayed, draw_explain
from dashboard.session import client, guard, lead_back, link
from dashboard.text import show_text
from dashboard.token_view.component import draw_tokens
from dashboard.what_if.panel import draw_what_if

CARDS, STACKED, TABLE = "side by side", "stacked", "table"
BY_ADVANTAGE = "by advantage"
ORDERS = ("as sampled", BY_ADVANTAGE)
PANEL, DIFFERENCE = "panel", "difference"
PANELS = (DIFFERENCE, WHICH)
JUDGED_ON_CARDS = 16  # completions; in a larger group the thumbs stand at the one that is opened
LONG_PROMPT = 900  # characters, from which a prompt scrolls in a frame of its own


def main() -> None:
    """The prompt, the arithmetic, the completions."""
    group_id = number_in_address("id")
    if group_id is None:
        lead_back("This address does not name a group. Open one from a run's groups.")
    with guard():
        group = client().group(group_id)
        run = as_replayed(client().run(group.run_id))
        if (other := follow_to_step(run, group)) != group.id:
            group = client().group(other)
    st.html(STYLE)
    by_advantage = st.session_state.get("order", read("order")) == BY_ADVANTAGE
    draw_path(run, group, [one.index for one in order_of(group.completions, by_advantage=by_advantage)])
    asked, compared = st.columns([6, 5], gap="medium", vertical_alignment="center")
    with asked:
        _draw_prompt(group)
        draw_numbers(run, group)
    judging = st.session_state.get(PANEL, read(PANEL)) == WHICH
    if not judging:  # a person who is asked which is better must not see what the reward says
        with compared:
            draw_strip(group)
    _draw_ways_on(run, group)
    if not judging:
        draw_what_if(run, group)
    _draw_completions(run, group)


def _draw_prompt(group: Group) -> None:
    prompt, answer = st.columns([3, 1], gap="small")
    for place, title, text in (
        (prompt, "Prompt", group.prompt or group.prompt_text),
        (answer, "Reference answer", MISSING if group.answer is None else group.answer),
    ):
        with place.container(gap="xsmall"):
            st.caption(title)
            show_text(text, height=180 if len(text) > LONG_PROMPT else None)


def _draw_ways_on(run: Run, group: Group) -> None:
    """What more there is to know of this group, and the bookmark."""
    with st.container(horizontal=True, vertical_alignment="center", key="ways-on"):
        others = _others(run.id, group.prompt_id, group.id)
        words = "no other draw in this run" if others == "0" else f"{others} other draw{'' if others == '1' else 's'}"
        link("prompt", f"This prompt: {words}", icon=":material/history:", prompt=group.prompt_id, runs=run.id)
        link("playground", "Open in the Playground", icon=":material/science:", group=group.id)
        if group.prompt and group.prompt_text != group.prompt:
            with st.popover("What the model read", icon=":material/article:", type="tertiary"):
                show_text(group.prompt_text, visible=True)
        draw_explain(run, group.step)
        draw_bookmark(group.id, group.bookmark)


@st.cache_data(ttl=10, max_entries=64, show_spinner=False)
def _others(run_id: int, prompt_id: str, group_id: int) -> str:
    with guard():
        page = client().groups(run_id, prompt_id=prompt_id, limit=200)
    others = sum(draw.id != group_id for draw in page.items)  # a group that a resume took back is not among them
    return f"{others}{'+' if page.next_cursor else ''}"


def _draw_completions(run: Run, group: Group) -> None:
    """How to see them, what is opened above them, and they themselves."""
    view, by_advantage, shown, apart, panel = _draw_controls(group)
    look = look_at(group, run.config)
    if panel == WHICH:  # alone: the cards would tell what the reward says
        with st.container(border=True, key="panel-body"):
            draw_choices(run, group)
        return
    opened = next((one for one in group.completions if one.index == opened_completion()), None)
    if opened is not None:
        _draw_opened(run, group, opened, look, shown)
    if panel == DIFFERENCE:
        with st.container(border=True, key="panel-body"):
            draw_difference(group, look, visible=shown.visible, full=shown.full)
    if view == TABLE:
        draw_table(run, group, by_advantage=by_advantage)
        return
    draw_cards(
        group,
        run.config,
        by_advantage=by_advantage,
        visible=shown.visible,
        full=shown.full,
        markdown=shown.markdown,
        stacked=view == STACKED,
        apart=apart,
        opened=None if opened is None else opened.index,
        draw_foot=partial(_draw_foot, group),
    )


def _draw_opened(run: Run, group: Group, completion: CompletionRecord, look: GroupLook, shown: TextLook) -> None:
    """The opened completion, above the cards and not among them, so that ← and → change it in its place. Without tokens its text stands whole."""
    with st.container(border=True, key=f"opened-{completion.id}"):
        account, text = st.columns([1, 3], gap="medium")
        with account:
            st.html(account_html(completion, look))
            with foot(f"opened-{completion.id}"):
                _button("close", ":material/close:", f"close-{completion.id}", open_completion, None)
                _draw_compare(group, completion, f"opened-{completion.id}")
                draw_thumbs(completion.id, completion.thumb)
        with text:
            if shown.markdown:
                draw_rendered(completion, f"opened-{completion.id}", full=True)
            elif completion.turns or not completion.has_trace:
                st.html(text_html(completion, TextLook(shown.visible, full=True)))
            draw_tokens(run, group, completion.index)


def _draw_foot(group: Group, completion: CompletionRecord) -> None:
    """Read a card's completion token by token, hold it against another, judge it."""
    word, icon = ("tokens", ":material/segment:") if completion.has_trace else ("open", ":material/open_in_full:")
    _button(word, icon, f"open-{completion.id}", open_completion, completion.index)
    _draw_compare(group, completion, str(completion.id))
    if len(group.completions) <= JUDGED_ON_CARDS:
        draw_thumbs(completion.id, completion.thumb)


def _draw_compare(group: Group, completion: CompletionRecord, key: str) -> None:
    if len(group.completions) > 1:
        other = opposite(completion.index, group)
        _button(f"diff with {other + 1}", ":material/difference:", f"compare-{key}", _compare, completion.index, other)


def _compare(left: int, right: int) -> None:
    show_pair(left, right)
    st.session_state[PANEL] = DIFFERENCE


def _button(label: str, icon: str, key: str, on_click: Callable[..., None], *args: int | None) -> None:
    st.button(label, icon=icon, key=key, type="tertiary", on_click=on_click, args=args)


def _draw_controls(group: Group) -> tuple[str, bool, TextLook, bool, str | None]:
    """View, order, how texts are shown, equal completions apart, and the open panel; all of it is in the address."""
    if read(PARAMETER) and PANEL not in st.session_state and not read(PANEL):
        st.session_state[PANEL] = DIFFERENCE
    with st.container(horizontal=True, vertical_alignment="center", key="controls"):
        view = one_of("View", (CARDS, STACKED, TABLE), key="layout")
        order = one_of("Order", ORDERS, key="order")
        full = st.toggle("Full texts", key="full", bind="query-params")
        visible = st.toggle("Show spaces", key="visible", bind="query-params", help="Also shows control characters.")
        about = "Renders Markdown and mathematics. Images, links and HTML stay text\\."
        markdown = st.toggle("Markdown", key="markdown", bind="query-params", help=about)
        apart = len(equal_ones(group.completions)) < len(group.completions) and st.toggle(
            "Equal ones apart", key="apart", bind="query-params", help="A card for each of several equal completions."
        )
        st.space("stretch")
        panel = st.pills("Open", PANELS, key=PANEL, bind="query-params", label_visibility="collapsed")
    return view, order == BY_ADVANTAGE, TextLook(visible, full, markdown=markdown), apart, panel


main()
