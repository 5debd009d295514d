"""One group: why the policy moved."""

from functools import partial

import streamlit as st

from backend.contract.groups import Group
from backend.contract.records import Run
from dashboard.components.address import number_in_address, read
from dashboard.format import MISSING
from dashboard.group.cards import STYLE, draw_cards, look_at, order_of
from dashboard.group.numbers import draw_numbers, draw_strip, draw_table
from dashboard.group.opened_completion import DIFFERENCE, JUDGED_ON_CARDS, PANEL, draw_foot, draw_opened
from dashboard.group.pair import PARAMETER, draw_difference
from dashboard.group.path import draw_path, follow_to_step, opened_completion
from dashboard.people.agreement import WHICH
from dashboard.people.choices import draw_choices
from dashboard.people.marks import draw_bookmark
from dashboard.session import client, guard, link
from dashboard.text import show_text
from dashboard.what_if.panel import draw_what_if

CARDS, STACKED, TABLE = "side by side", "stacked", "table"
BY_ADVANTAGE = "by advantage"
ORDERS = ("as sampled", BY_ADVANTAGE)
PANELS = (DIFFERENCE, WHICH)
LONG_PROMPT = 900  # characters, from which a prompt scrolls in a frame of its own


def main() -> None:
    """The prompt, the arithmetic, the completions."""
    group_id = number_in_address("id")
    if group_id is None:
        st.info("This address does not name a group. Open one from a run's groups.", icon=":material/search_off:")
        link("runs", "All runs", icon=":material/list:")
        return
    with guard():
        group = client().group(group_id)
        run = client().run(group.run_id)
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
        _draw_draws(run, group)
        link("playground", "Open in the Playground", icon=":material/science:", group=group.id)
        if group.prompt and group.prompt_text != group.prompt:
            with st.popover("What the model read", icon=":material/article:", type="tertiary"):
                show_text(group.prompt_text, visible=True)
        draw_bookmark(group)


def _draw_draws(run: Run, group: Group) -> None:
    """How often this run drew the prompt besides, and the way to all of its groups."""
    others = _others(run.id, group.prompt_id, group.id)
    words = "no other draw in this run" if others == "0" else f"{others} other draw{'' if others == '1' else 's'}"
    link("prompt", f"This prompt: {words}", icon=":material/history:", prompt=group.prompt_id, runs=run.id)


@st.cache_data(ttl=10, max_entries=64, show_spinner=False)
def _others(run_id: int, prompt_id: str, group_id: int) -> str:
    with guard():
        page = client().groups(run_id, prompt_id=prompt_id, limit=200)
    others = sum(draw.id != group_id for draw in page.items)  # a group that a resume took back is not among them
    return f"{others}{'+' if page.next_cursor else ''}"


def _draw_completions(run: Run, group: Group) -> None:
    """How to see them, what is opened above them, and they themselves."""
    view, by_advantage, visible, full, panel = _draw_controls()
    look = look_at(group, run.config)
    if panel == WHICH:  # alone: the cards would tell what the reward says
        with st.container(border=True, key="panel-body"):
            draw_choices(run, group)
        return
    opened = next((one for one in group.completions if one.index == opened_completion()), None)
    if opened is not None:
        elsewhere = view != TABLE and len(group.completions) <= JUDGED_ON_CARDS
        draw_opened(run, group, opened, look, visible=visible, thumbs=not elsewhere)
    if panel == DIFFERENCE:
        with st.container(border=True, key="panel-body"):
            draw_difference(group, look, visible=visible, full=full)
    if view == TABLE:
        draw_table(run, group, by_advantage=by_advantage)
        return
    draw_cards(
        group,
        run.config,
        by_advantage=by_advantage,
        visible=visible,
        full=full,
        stacked=view == STACKED,
        draw_foot=partial(draw_foot, group),
    )


def _draw_controls() -> tuple[str, bool, bool, bool, str | None]:
    """View, order, signs, full texts and the open panel; all of it is in the address."""
    if read(PARAMETER) and PANEL not in st.session_state and not read(PANEL):
        st.session_state[PANEL] = DIFFERENCE
    with st.container(horizontal=True, vertical_alignment="center", key="controls"):
        view = _choice("View", (CARDS, STACKED, TABLE), "layout")
        order = _choice("Order", ORDERS, "order")
        full = st.toggle("Full texts", key="full", bind="query-params")
        visible = st.toggle("Signs for spaces", key="visible", bind="query-params", help="And for control characters.")
        st.space("stretch")
        panel = st.pills("Open", PANELS, key=PANEL, bind="query-params", label_visibility="collapsed")
    return view, order == BY_ADVANTAGE, visible, full, panel


def _choice(label: str, options: tuple[str, ...], key: str) -> str:
    chosen = st.segmented_control(
        label,
        options,
        default=options[0],
        required=True,
        key=key,
        bind="query-params",
        label_visibility="collapsed",
    )
    return str(chosen)


main()
