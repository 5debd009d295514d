"""From rewards to advantages: the group's numbers, the formula with them in it, and every completion's place on a line."""

import pandas as pd
import streamlit as st

from backend.contract.advantage import Estimator
from backend.contract.groups import Group
from backend.contract.records import Run
from backend.contract.reward import KL_PENALTY
from dashboard.algorithm.estimators import formula, mean_of, spell_advantage, std_of, stored_estimator
from dashboard.algorithm.rewards import exact, extremes, spell_term, terms
from dashboard.charts.group import strip_figure
from dashboard.components.chart import show
from dashboard.components.model_text import in_html
from dashboard.format import number
from dashboard.group.completion_html import order_of
from dashboard.group.in_words import state_in_words
from dashboard.status import FINISHED


def draw_numbers(run: Run, group: Group) -> None:
    """Why the policy moved, or why it did not, in a sentence; and the numbers that say so."""
    st.markdown(state_in_words(group, run.config))
    st.html(figures_html(group, stored_estimator(run.config)))


def draw_strip(group: Group) -> None:
    """Every completion at its reward, around the mean."""
    show(
        strip_figure(group.completions, group.reward_mean, group.reward_std),
        key=f"strip-{group.id}",
        about="Rewards of the group's completions around their mean",
        file=f"group-{group.id}-rewards",
    )


def figures_html(group: Group, how: Estimator) -> str:
    """Mean, std, how many were scored and how many cut; and the formula."""
    figures = [
        (f"mean ({mean_of(how)})", number(group.reward_mean)),
        (f"std ({std_of(how)})", number(group.reward_std)),
        ("scored", f"{group.scored} of {len(group.completions)}"),
        ("cut at the limit", f"{group.truncated} of {len(group.completions)}"),
    ]
    cells = "".join(f"<div><small>{in_html(name)}</small><b>{value}</b></div>" for name, value in figures)
    return f'<div class="group-figures">{cells}</div><div class="group-formula">{in_html(formula(group, how))}</div>'


def draw_table(run: Run, group: Group, *, by_advantage: bool) -> None:
    """The exact arithmetic, a line for each completion."""
    st.dataframe(
        arithmetic_table(run, group, by_advantage=by_advantage),
        hide_index=True,
        key=f"arithmetic-{group.id}",
        height="content" if len(group.completions) <= 24 else 800,
        column_config={
            "#": st.column_config.NumberColumn("#", width=45),
            "best, worst": st.column_config.TextColumn("", width=60),
            "how": st.column_config.TextColumn("how the advantage came about", width="large"),
        },
    )


def arithmetic_table(run: Run, group: Group, *, by_advantage: bool = False) -> pd.DataFrame:
    """Six significant digits of everything, as stored."""
    how, marks = stored_estimator(run.config), extremes(group)
    rows = []
    for completion in order_of(group.completions, by_advantage=by_advantage):
        row: dict[str, str | int] = {"#": completion.index + 1, "best, worst": marks.get(completion.index, "")}
        row |= {_column(term.score.name): spell_term(term) for term in terms(completion, run.config)}
        row |= {
            "reward": exact(completion.reward),
            "advantage": exact(completion.advantage, sign=True),
            "tokens": completion.token_count,
            "ended": FINISHED[completion.finish_reason],
            "how": spell_advantage(completion, group, how),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _column(reward: str) -> str:
    return "KL penalty" if reward == KL_PENALTY else reward
