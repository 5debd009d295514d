"""The groups of one step of a run: how many carried a signal, and each with its rewards and advantages."""

import pandas as pd
import streamlit as st

from backend.contract.groups import GroupSummary, StepSummary
from backend.contract.records import Run
from dashboard.charts.group import reward_squares
from dashboard.components.address import GROUPS, choose, chosen
from dashboard.components.dead_groups import describe_states, why_dead
from dashboard.components.model_text import one_line
from dashboard.components.stored import highest_reward
from dashboard.format import MISSING, number, signed
from dashboard.session import client, go, guard

PAGE = 200
STATES = {"all groups": None, "live": "live", "dead": "zero_variance", "unscored": "unscored", "filtered": "filtered"}
ORDERS = {
    "in the step's order": "index",
    "widest spread first": "-reward_std",
    "best first": "-reward_mean",
    "worst first": "reward_mean",
}


def draw_filters() -> None:
    """Which groups to show, in which order; all of it is in the address."""
    state, order, search = st.columns([3, 2, 3], vertical_alignment="bottom")
    state.segmented_control("Show", list(STATES), default="all groups", required=True, key="show", bind="query-params")
    order.selectbox("Order", list(ORDERS), key="order", bind="query-params")
    search.text_input(
        "Search",
        key="search",
        bind="query-params",
        placeholder="words in prompts and completions",
        icon=":material/search:",
    )


def draw_groups(run: Run) -> None:
    """The step picker, the step in one sentence, and the table of its groups; a click on a row opens the group."""
    with guard():
        steps = client().steps(run.id)
    if not steps:
        st.info(
            "No groups yet. They appear after the first step: each prompt with its completions, rewards and advantages.",
            icon=":material/hourglass_empty:",
        )
        return
    summary = _pick_step(run, steps)
    st.markdown(
        f"**Step {summary.step}** · {describe_states(run, summary)} :gray[:small[· click a line to open its group]]"
    )
    reason = why_dead(run, summary)
    if reason:
        st.info(reason, icon=":material/lightbulb:")
    _draw_table(run, summary.step)


def _pick_step(run: Run, steps: list[StepSummary]) -> StepSummary:
    """A chosen step stays whatever the run does; without one the newest is shown."""
    known = [summary.step for summary in steps]
    wanted = chosen()
    step = known[-1] if wanted is None else min(known, key=lambda each: abs(each - wanted))
    place = known.index(step)
    key = f"step-{run.id}"
    st.session_state[key] = step
    back, slide, forth, follow = st.columns([1, 12, 1, 3], vertical_alignment="bottom")
    back.button(
        "",
        icon=":material/chevron_left:",
        key="step-back",
        disabled=place == 0,
        shortcut="p",
        on_click=choose,
        args=(known[max(place - 1, 0)],),
        width="stretch",
    )
    if len(known) > 1:
        slide.select_slider("Step", known, key=key, on_change=lambda: choose(st.session_state[key]))
    else:
        slide.text(f"Step {step}")
    forth.button(
        "",
        icon=":material/chevron_right:",
        key="step-forth",
        disabled=place == len(known) - 1,
        shortcut="n",
        on_click=choose,
        args=(known[min(place + 1, len(known) - 1)],),
        width="stretch",
    )
    st.session_state["follow"] = wanted is None
    follow.toggle(
        "Follow the newest",
        key="follow",
        help="Shows each new step as it comes. Choosing a step switches this off.",
        on_change=lambda: choose(None if st.session_state["follow"] else step),
    )
    return steps[place]


def _draw_table(run: Run, step: int) -> None:
    pages = st.session_state.get(f"pages-{run.id}-{step}", 1)
    groups, more = _fetch(run.id, step, pages)
    if not groups:
        st.info("No group of this step fits. Show all groups, or empty the search.", icon=":material/filter_alt_off:")
        return
    event = st.dataframe(
        _table(groups, highest_reward(run.config)),
        key=f"groups-{run.id}",
        on_select="rerun",
        selection_mode="single-cell",
        hide_index=True,
        height=min(36 * len(groups) + 38, 620),
        placeholder=MISSING,
        row_height=36,
        column_config={
            "group": st.column_config.NumberColumn("#", width=45),
            "state": st.column_config.TextColumn("state", width=70),
            "prompt": st.column_config.TextColumn("prompt", width=170),
            "rewards": st.column_config.ImageColumn(
                "rewards",
                width=_squares_width(groups),
                help="One square a completion, filled as high as its reward. Blue was "
                "reinforced, orange discouraged, grey neither; a cross could not be scored.",
            ),
            "mean": st.column_config.TextColumn("mean", width=60, alignment="right"),
            "std": st.column_config.TextColumn("std", width=60, alignment="right"),
            "advantages": st.column_config.TextColumn("advantages", width=110, help="Lowest … highest in the group."),
            "best": st.column_config.TextColumn("best ends with"),
            "worst": st.column_config.TextColumn("worst ends with"),
        },
    )
    if event.selection.cells:
        # more than the group needs, so that the browser's way back finds this table again
        go("group", id=groups[event.selection.cells[0][0]].id, run=run.id, step=step, tab=GROUPS.lower())
    if more and st.button(f"Show {PAGE} more"):
        st.session_state[f"pages-{run.id}-{step}"] = pages + 1
        st.rerun(scope="fragment")


def _fetch(run_id: int, step: int, pages: int) -> tuple[list[GroupSummary], bool]:
    groups: list[GroupSummary] = []
    cursor: str | None = None
    for _ in range(pages):
        with guard():
            page = client().groups(
                run_id,
                step=step,
                state=STATES[st.session_state.get("show") or "all groups"],
                search=st.session_state.get("search") or None,
                sort=ORDERS[st.session_state.get("order") or "in the step's order"],
                limit=PAGE,
                cursor=cursor,
            )
        groups += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    return groups, cursor is not None


def _table(groups: list[GroupSummary], highest: float) -> pd.DataFrame:
    known = [reward for group in groups for reward in group.rewards if reward is not None]
    low, high = min([0.0, *known]), max([highest, *known])
    words = {state: word for word, state in STATES.items() if state}
    return pd.DataFrame(
        {
            "group": [group.index + 1 for group in groups],
            "prompt": [one_line(group.prompt or group.prompt_text) for group in groups],
            "state": [words[group.state] for group in groups],
            "rewards": [reward_squares(group.rewards, group.advantages, low, high) for group in groups],
            "mean": [number(group.reward_mean) for group in groups],
            "std": [number(group.reward_std) for group in groups],
            "advantages": [_range(group.advantages) for group in groups],
            "best": [one_line(group.best or "") for group in groups],
            "worst": [one_line(group.worst or "") for group in groups],
        }
    )


def _range(advantages: list[float | None]) -> str:
    known = [advantage for advantage in advantages if advantage is not None]
    if not known:
        return MISSING
    return "0" if max(known) == min(known) == 0 else f"{signed(min(known))} … {signed(max(known))}"


def _squares_width(groups: list[GroupSummary]) -> int:
    return max(70, min(360, 14 * max(len(group.rewards) for group in groups) + 20))
