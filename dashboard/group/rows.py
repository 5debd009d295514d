"""Groups as the rows of a table: rewards as squares, the ends of the best and the worst text."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from backend.contract.groups import GroupState, GroupSummary
from dashboard.charts.group import reward_squares
from dashboard.components.clicked import pick_row
from dashboard.components.model_text import one_line
from dashboard.format import MISSING, number, signed

WORDS: dict[GroupState, str] = {
    "live": "live",
    "zero_variance": "dead",
    "unscored": "unscored",
    "filtered": "filtered",
    "probe": "probe",
}
STAR = "★"
ENDING = 32  # letters of a completion's end in the table


def table(groups: Sequence[GroupSummary], highest: float) -> pd.DataFrame:
    """A row for each group; rewards up to `highest` fill their square. A caller shows the columns that it wants."""
    known = [reward for group in groups for reward in group.rewards if reward is not None]
    low, high = min([0.0, *known]), max([highest, *known])
    return pd.DataFrame(
        {
            "star": [STAR if group.bookmarked else "" for group in groups],
            "run": [f"#{group.run_id}" for group in groups],
            "step": [group.step for group in groups],
            "group": [group.index + 1 for group in groups],
            "prompt": [one_line(group.prompt or group.prompt_text) for group in groups],
            "state": [_state(group) for group in groups],
            "rewards": [reward_squares(group.rewards, group.advantages, low, high) for group in groups],
            "mean": [number(group.reward_mean) for group in groups],
            "std": [number(group.reward_std) for group in groups],
            "advantages": [_range(group.advantages) for group in groups],
            "best": [_end(group.best) for group in groups],
            "worst": [_end(group.worst) for group in groups],
        }
    )


def columns(groups: Sequence[GroupSummary]) -> dict[str, ColumnConfig]:
    """How the columns look."""
    return {
        "star": st.column_config.TextColumn(STAR, width=30, help="Bookmarked."),
        "run": st.column_config.TextColumn("run", width=50),
        "step": st.column_config.NumberColumn("step", width=60),
        "group": st.column_config.NumberColumn("#", width=45),
        "state": st.column_config.TextColumn(
            "state",
            width=150 if any(group.superseded for group in groups) else 70,
            help="Superseded: a later attempt did this step again, from a checkpoint before it.",
        ),
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
    }


def pick(groups: Sequence[GroupSummary], highest: float, shown: Sequence[str], *, key: str) -> GroupSummary | None:
    """The table with the columns `shown`; the group in whose row a person clicked."""
    return pick_row(groups, table(groups, highest), columns(groups), shown=shown, key=key)


def _end(text: str | None) -> str:
    """As much of the end as a column shows, so that it is the beginning that is cut off."""
    line = one_line(text or "")
    return line if len(line) <= ENDING else f"…{line[-ENDING:]}"


def _state(group: GroupSummary) -> str:
    return f"{WORDS[group.state]}, superseded" if group.superseded else WORDS[group.state]


def _range(advantages: Sequence[float | None]) -> str:
    known = [advantage for advantage in advantages if advantage is not None]
    if not known:
        return MISSING
    return "0" if max(known) == min(known) == 0 else f"{signed(min(known))} … {signed(max(known))}"


def _squares_width(groups: Sequence[GroupSummary]) -> int:
    return max(70, min(360, 14 * max(len(group.rewards) for group in groups) + 20))
