"""The groups of a run, step by step: how many carried a signal, and each with its rewards and advantages."""

from itertools import islice

import streamlit as st

from backend.contract.groups import GroupState, GroupSummary, StepSummary
from backend.contract.records import Run
from dashboard.components.address import choose, chosen
from dashboard.components.keys import listen
from dashboard.components.known_steps import known_steps
from dashboard.components.synced import on_choice, sync
from dashboard.group.dead import describe_states, why_dead
from dashboard.group.rows import WORDS, pick_group
from dashboard.leaving import go
from dashboard.replay.ask import as_replayed, draw_explain
from dashboard.session import client, pages_of
from dashboard.stored import highest_reward
from dashboard.what_if.panel import draw_what_if_step

PAGE = 200
STATES: dict[str, GroupState | None] = {"all groups": None, **{word: state for state, word in WORDS.items()}}
ORDERS = {
    "as drawn": "index",
    "widest spread first": "-reward_std",
    "best first": "-reward_mean",
    "worst first": "reward_mean",
}
COLUMNS = ("star", "group", "prompt", "state", "rewards", "mean", "std", "advantages", "best", "worst")
KEYS = {"[": "step-back", "]": "step-forth", "/": "search"}


def draw_groups(run: Run) -> None:
    """Filters, the step picker, the step in one sentence, and the table of its groups; a click on a row opens the group."""
    run = as_replayed(run)
    _draw_filters()
    steps = known_steps(run)
    if not steps:
        words = (
            "No groups yet. They appear after the first step: each prompt with its completions, rewards and advantages."
        )
        if run.progress.step:
            words = "No group of this run was kept, so there is nothing to open."
        st.info(words, icon=":material/hourglass_empty:")
        return
    listen(KEYS)
    if st.session_state.get("bookmarked"):
        st.markdown("**All steps** · bookmarked groups :gray[:small[· click a line to open its group]]")
        _draw_table(run, None)
        return
    summary = _pick_step(run, steps)
    with st.container(horizontal=True, vertical_alignment="center", key="step-in-words"):
        words = (
            f"**Step {summary.step}** · {describe_states(run, summary)} :gray[:small[· click a line to open its group]]"
        )
        st.markdown(words, width="content")
        draw_explain(run, summary.step)
    reason = why_dead(run, summary)
    if reason:
        st.info(reason, icon=":material/lightbulb:")
    _draw_table(run, summary.step)
    draw_what_if_step(run, summary.step)


def _draw_filters() -> None:
    """Which groups to show, in which order; all of it is in the address."""
    state, bookmarked, order, search = st.columns([4, 1.4, 2, 3], vertical_alignment="bottom")
    state.segmented_control("Show", list(STATES), default="all groups", required=True, key="show", bind="query-params")
    bookmarked.toggle(
        "Bookmarked",
        key="bookmarked",
        bind="query-params",
        help="Bookmarked groups of all steps, including steps that were done again after a resume.",
    )
    order.selectbox("Order", list(ORDERS), key="sort", bind="query-params")
    search.text_input(
        "Search",
        key="search",
        bind="query-params",
        placeholder="words in prompts and completions",
        help="Press / to jump here.",
        icon=":material/search:",
    )


def _pick_step(run: Run, steps: list[StepSummary]) -> StepSummary:
    """Draw the step's controls. A chosen step stays whatever the run does; otherwise the newest is shown."""
    known = [summary.step for summary in steps]
    wanted = chosen()
    step = known[-1] if wanted is None else min(known, key=lambda each: abs(each - wanted))
    place = known.index(step)
    key = f"step-{run.id}"
    sync(key, step, follows=wanted is None)
    back, slide, forth, follow = st.columns([1, 12, 1, 3], vertical_alignment="bottom")
    for column, name, icon, sign, there in (
        (back, "step-back", "chevron_left", "[", max(place - 1, 0)),
        (forth, "step-forth", "chevron_right", "]", min(place + 1, len(known) - 1)),
    ):
        column.button(
            "",
            icon=f":material/{icon}:",
            key=name,
            disabled=there == place,
            help=f"Key {sign}",
            on_click=choose,
            args=(known[there],),
            width="stretch",
        )
    if len(known) > 1:
        slide.select_slider("Step", known, key=key, on_change=on_choice(key, choose))
    else:
        slide.text(f"Step {step}")
    sync("follow", wanted is None)
    follow.toggle(
        "Follow the newest",
        key="follow",
        help="Shows each new step as it comes. Choosing a step switches this off.",
        on_change=on_choice("follow", lambda newest: choose(None if newest else step)),
    )
    return steps[place]


def _draw_table(run: Run, step: int | None) -> None:
    """Draw the groups of the step; the bookmarked ones of all steps if it is None."""
    place = f"{run.id}-{'bookmarked' if step is None else step}"
    pages = st.session_state.get(f"pages-{place}", 1)
    groups, more = _fetch(run.id, step, pages)
    if not groups:
        asked = st.session_state.get("search") or st.session_state.get("show", "all groups") != "all groups"
        words = f"No {'bookmarked group' if step is None else 'group of this step'} fits. Show all groups, or empty the search."
        if step is None and not asked:
            words = "No group is bookmarked. Open a group and bookmark it: it is found here again, with its note."
        st.info(words, icon=":material/filter_alt_off:")
        return
    columns = COLUMNS if step is not None else ("step", *COLUMNS)
    group = pick_group(groups, highest_reward(run.config), columns, key=f"groups-{run.id}")
    if group is not None:
        go("group", id=group.id)
    if more and st.button(f"Show {PAGE} more"):
        st.session_state[f"pages-{place}"] = pages + 1
        st.rerun(scope="fragment")


def _fetch(run_id: int, step: int | None, pages: int) -> tuple[list[GroupSummary], bool]:
    """The groups of the first pages, as many as `pages` says, and whether there are more."""
    order = ORDERS[st.session_state.get("sort") or next(iter(ORDERS))]
    every = pages_of(
        lambda cursor: client().groups(
            run_id,
            step=step,
            state=STATES[st.session_state.get("show") or "all groups"],
            search=st.session_state.get("search") or None,
            bookmarked=True if step is None else None,
            sort="step" if step is None and order == "index" else order,
            limit=PAGE,
            cursor=cursor,
        )
    )
    read = list(islice(every, pages))
    return [group for page in read for group in page.items], read[-1].next_cursor is not None
