"""One group before and after: a picture, and every digit."""

from math import isclose

import pandas as pd
import streamlit as st

from dashboard.algorithm.recomputation import Recomputed, StepArrays
from dashboard.components.chart import show
from dashboard.format import MISSING
from dashboard.what_if.changes import SIGNS, sign
from dashboard.what_if.figures import change_figure

_TALLEST = 600


def draw_group(step: StepArrays, after: Recomputed, place: int) -> None:
    """The group at this place of the step."""
    completions = step.groups[place].completions
    advantages = after.advantages_P_G[place, : len(completions)].tolist()
    picture, numbers = st.columns([1, 1.15], gap="medium")
    with picture, st.container(key="what-if-change"):
        show(
            change_figure([one.advantage for one in completions], advantages),
            key="what-if-change-chart",
            about="Each completion's advantage as it was stored and as it would have been",
        )
        st.caption("Ring: stored. Dot: what if, blue reinforced, orange discouraged.")
    with numbers:
        st.dataframe(
            _table(step, after, place),
            key="what-if-table",
            hide_index=True,
            height="content" if len(completions) <= 16 else _TALLEST,
            column_config={"#": st.column_config.NumberColumn("#", width=40)}
            | {
                name: st.column_config.TextColumn(name, alignment="right")
                for name in ("reward", "reward, what if", "advantage", "advantage, what if")
            },
        )


def _table(step: StepArrays, after: Recomputed, place: int) -> pd.DataFrame:
    completions = step.groups[place].completions
    rewards, advantages = after.rewards_P_G[place].tolist(), after.advantages_P_G[place].tolist()
    return pd.DataFrame(
        {
            "#": [one.index + 1 for one in completions],
            "reward": [digits(one.reward) for one in completions],
            "reward, what if": [digits(reward) for reward in rewards[: len(completions)]],
            "advantage": [digits(one.advantage) for one in completions],
            "advantage, what if": [digits(advantage) for advantage in advantages[: len(completions)]],
            "pushed": [
                _change(one.advantage, advantage) for one, advantage in zip(completions, advantages, strict=False)
            ],
        }
    )


def digits(value: float | None) -> str:
    """Every digit that the number has; a completion that nothing could score has none."""
    if value is None or value != value:
        return MISSING
    return repr(value + 0.0).removesuffix(".0").replace("-", "−")


def _change(before: float | None, after: float) -> str:
    if before is None:
        return "not trained on"
    if sign(before) != sign(after):
        return f"{SIGNS[sign(before)]} → {SIGNS[sign(after)]}"
    if isclose(before, after, rel_tol=1e-9):
        return ""
    return "more" if abs(after) > abs(before) else "less"
