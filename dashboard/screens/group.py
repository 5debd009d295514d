"""One group: why the policy moved."""

import pandas as pd
import streamlit as st

from backend.contract.groups import Group
from backend.contract.records import Run
from backend.contract.reward import KL_PENALTY
from dashboard.charts.group import strip_figure
from dashboard.components.address import GROUPS, OVERVIEW, group_in_address
from dashboard.components.chart import show
from dashboard.components.completion_card import draw_cards
from dashboard.components.group_arithmetic import (
    Estimator,
    estimator,
    exact,
    extremes,
    formula,
    spell_advantage,
    spell_term,
    terms,
)
from dashboard.components.group_in_words import state_in_words
from dashboard.components.model_text import show_text
from dashboard.components.style import FIGURES, apply_style
from dashboard.format import MISSING, number
from dashboard.session import client, guard, link
from dashboard.status import GROUP

ORDERS = ("as sampled", "by advantage")


def main() -> None:
    """The prompt, the arithmetic, the completions."""
    group_id = group_in_address()
    if group_id is None:
        st.info("This address names no group. Open one from a run's groups.", icon=":material/search_off:")
        link("runs", "All runs", icon=":material/list:")
        return
    with guard():
        group = client().group(group_id)
        run = client().run(group.run_id)
    apply_style()
    _draw_path(run, group)
    _draw_prompt(group)
    _draw_arithmetic(run, group)
    order, visible = _draw_view()
    draw_cards(group, run.config, by_advantage=order == ORDERS[1], visible=visible)


def _draw_path(run: Run, group: Group) -> None:
    """Where this group is, and the way to its neighbours."""
    siblings = _siblings(run.id, group.step)
    place = siblings.index(group.id) if group.id in siblings else 0
    with st.container(horizontal=True, vertical_alignment="center", key="path"):
        link("run", f"Run #{run.id}", id=run.id, tab=OVERVIEW.lower())
        st.text(run.name)
        link("run", f"Step {group.step}", id=run.id, tab=GROUPS.lower(), step=group.step)
        st.markdown(f"**Group {group.index + 1}** of {len(siblings)}", width="content")
        equal = group.state == "zero_variance" and not estimator(run.config).centred
        st.markdown(
            ":gray[:material/drag_handle: equal rewards]" if equal else GROUP[group.state].markdown, width="stretch"
        )
        for label, icon, shortcut, other in (
            ("Previous", ":material/chevron_left:", "left", place - 1),
            ("Next", ":material/chevron_right:", "right", place + 1),
        ):
            inside = 0 <= other < len(siblings)
            st.button(
                label,
                icon=icon,
                shortcut=shortcut,
                key=label.lower(),
                disabled=not inside,
                on_click=_open,
                args=(siblings[other] if inside else group.id,),
            )


def _open(group_id: int) -> None:
    st.query_params["id"] = str(group_id)


@st.cache_data(ttl=60, max_entries=32, show_spinner=False)
def _siblings(run_id: int, step: int) -> list[int]:
    """The ids of the step's groups, in their order."""
    ids: list[int] = []
    cursor: str | None = None
    while True:
        with guard():
            page = client().groups(run_id, step=step, sort="index", limit=200, cursor=cursor)
        ids += [group.id for group in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return ids


def _draw_prompt(group: Group) -> None:
    prompt, answer = st.columns([3, 1])
    with prompt:
        st.caption("Prompt")
        show_text(group.prompt or group.prompt_text)
    with answer:
        st.caption("Reference answer")
        show_text(MISSING if group.answer is None else group.answer)
    if group.prompt and group.prompt_text != group.prompt:
        with st.expander("What the model read"):
            show_text(group.prompt_text, visible=True)


def _draw_arithmetic(run: Run, group: Group) -> None:
    """From rewards to advantages, with every number in sight."""
    how = estimator(run.config)
    st.markdown(state_in_words(group, how))
    numbers, strip = st.columns([2, 3], vertical_alignment="center")
    with numbers, st.container(key=FIGURES):
        cells = st.columns(3)
        cells[0].metric(f"Mean ({how.mean_of})", number(group.reward_mean))
        cells[1].metric(f"Std ({how.std_of})", number(group.reward_std))
        cells[2].metric("Scored", f"{group.scored} of {len(group.completions)}")
        st.code(formula(group, how), language=None, wrap_lines=True)
        link("playground", "What if? Open it in the Playground", icon=":material/science:", group=group.id)
    with strip:
        show(
            strip_figure(group.completions, group.reward_mean, group.reward_std),
            key=f"strip-{group.id}",
            about="Rewards of the group's completions around their mean",
        )
    st.dataframe(
        _arithmetic_table(run, group, how),
        hide_index=True,
        key=f"arithmetic-{group.id}",
        width="content",
        height="content" if len(group.completions) <= 16 else 600,
        column_config={
            "#": st.column_config.NumberColumn("#", width=45),
            "best, worst": st.column_config.TextColumn("", width=60),
            "how": st.column_config.TextColumn("how the advantage came about", width="large"),
        },
    )


def _arithmetic_table(run: Run, group: Group, how: Estimator) -> pd.DataFrame:
    marks = extremes(group)
    rows = []
    for completion in group.completions:
        row: dict[str, str | int] = {"#": completion.index + 1, "best, worst": marks.get(completion.index, "")}
        row |= {_column(term.score.name): spell_term(term) for term in terms(completion, run.config)}
        row |= {
            "reward": exact(completion.reward),
            "advantage": exact(completion.advantage, sign=True),
            "how": spell_advantage(completion, group, how),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _column(reward: str) -> str:
    return "KL penalty" if reward == KL_PENALTY else reward


def _draw_view() -> tuple[str, bool]:
    with st.container(horizontal=True, vertical_alignment="center"):
        order = st.segmented_control(
            "Order",
            ORDERS,
            default=ORDERS[0],
            required=True,
            key="order",
            bind="query-params",
            label_visibility="collapsed",
        )
        visible = st.toggle("Show whitespace and control characters", key="visible", bind="query-params")
    return str(order), visible


main()
