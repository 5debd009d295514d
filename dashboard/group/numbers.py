"""From rewards to advantages: what the group's state means, its numbers, the formula with them, and every completion's place."""

import math
from collections.abc import Mapping
from statistics import fmean

import pandas as pd
import streamlit as st

from backend.contract.advantage import Estimator
from backend.contract.base import Json
from backend.contract.groups import Group
from backend.contract.records import Run
from backend.contract.reward import KL_PENALTY, reward_bound
from dashboard.algorithm.estimators import (
    UNKNOWN,
    formula,
    mean_of,
    spell_advantage,
    std_of,
    stored_estimator,
    words_of,
)
from dashboard.algorithm.rewards import AnyGroup, all_equal, exact, extremes, spell_term, terms
from dashboard.charts.group import strip_figure
from dashboard.components.chart import show
from dashboard.format import MISSING, number
from dashboard.group.cards import order_of
from dashboard.status import FINISHED, measured
from dashboard.stored import get, is_recorded, number_at, text_at
from dashboard.text import in_html


def state_in_words(group: AnyGroup, config: Mapping[str, Json]) -> str:
    """One sentence or two, in Markdown, from the configuration that the run was stored with."""
    how, highest = stored_estimator(config), reward_bound(config)
    if group.state == "filtered":
        return (
            f"**Filtered:** {_same(group, 'no two of its rewards differed', highest)}, so dynamic sampling replaced it by a group of "
            "another prompt. Nothing here was trained on."
        )
    if group.state == "probe" and is_recorded(config):
        return f"**Of an evaluation:** sampled to judge the policy, and never trained on. Here {_scored(group)}."
    if group.state == "probe":
        return (
            f"**Probe:** a fixed prompt that is never trained on. It is sampled again every few steps, to show how the policy changes.  "
            f"Here {_scored(group)}."
        )
    if group.state == "unscored" and is_recorded(config):
        return f"**Without rewards:** of {len(group.completions)} completions {group.scored} have a recorded reward. What they did to the policy is not known."
    if group.state == "unscored":
        return (
            f"**Unscored:** only {group.scored} of {len(group.completions)} completions could be scored{_too_few(group, config)}; "
            "each completion shows its error."
        )
    if group.state == "live":
        return words_of(how).live
    return _equal_in_words(group, config)


def _equal_in_words(group: AnyGroup, config: Mapping[str, Json]) -> str:
    if not all_equal(group):
        return (
            "**Alike but for the KL:** the task's rewards are all equal. What still differs is the KL penalty in the reward, and it "
            "is all that this group teaches: to stay near the reference."
        )
    how, same = stored_estimator(config), _same(group, "all rewards are equal", reward_bound(config))
    if how.kind == UNKNOWN and any(one.advantage is None for one in group.completions):
        return (
            f"**All alike:** {same}. Advantages were not recorded; an estimator that compares completions with their group gives "
            "each of them 0."
        )
    if not how.centred:
        return f"**All alike, yet trained on:** {same}; {words_of(how).equal.format(mean=exact(group.reward_mean))}."
    why = words_of(how).dead or f"{same}, so no completion is better than the mean"
    return f"**Dead:** {why}: {_nothing_to_compare(config)}."


def _nothing_to_compare(config: Mapping[str, Json]) -> str:
    """What an advantage of 0 leaves of the loss: its other parts are taken on every token, whatever its advantage."""
    if is_recorded(config) and get(dict(config), "algorithm.kl") is None:
        return "every advantage is 0; whether a KL penalty acts on its tokens was not recorded"
    beta = number_at(config, "algorithm.kl.beta", 0.0)
    in_the_loss = text_at(config, "algorithm.kl.placement", "loss") == "loss"
    parts = [f"the KL penalty (β = {beta:g})"] if beta > 0 and in_the_loss else []
    parts += ["the entropy bonus"] if number_at(config, "algorithm.entropy_bonus", 0.0) > 0 else []
    if not parts:
        return "every advantage is 0 and the policy is not moved by this group"
    return f"every advantage is 0 and only {' and '.join(parts)} act{'s' if len(parts) == 1 else ''} on its tokens"


def _same(group: AnyGroup, otherwise: str, highest: float | None) -> str:
    """all 8 scored completions got 1.00, the highest possible (all correct)."""
    rewards = {completion.reward for completion in group.completions if completion.reward is not None}
    if len(rewards) != 1:
        return otherwise
    reward = rewards.pop()
    meant = ""
    if highest is not None and math.isclose(reward, highest, abs_tol=1e-6):
        meant = ", the highest possible (all correct)"
    elif highest is not None and reward == 0:
        meant = " (all wrong)"
    return f"all {group.scored} scored completions got {number(reward)}{meant}"


def _scored(group: AnyGroup) -> str:
    rewards = [completion.reward for completion in group.completions if completion.reward is not None]
    whole = len(group.completions)
    if rewards:
        return f"{len(rewards)} of {whole} completions were scored, {number(fmean(rewards))} on average"
    return f"none of {whole} completions was scored"


def _too_few(group: AnyGroup, config: Mapping[str, Json]) -> str:
    if not group.scored:
        return ", and the policy is not moved by this group"
    if stored_estimator(config).centred:
        return f", too few to compare: {_nothing_to_compare(config)}"
    return ". What could be scored is trained on, since this estimator needs no other completion to compare with"


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
    known = all(map(measured, group.completions))
    figures = [
        (f"mean ({mean_of(how)})", number(group.reward_mean)),
        (f"std ({std_of(how)})", number(group.reward_std)),
        ("scored", f"{group.scored} of {len(group.completions)}"),
        ("cut at the limit", f"{group.truncated} of {len(group.completions)}" if known else MISSING),
    ]
    cells = "".join(f"<div><small>{in_html(name)}</small><b>{value}</b></div>" for name, value in figures)
    return f'<div class="group-figures">{cells}</div><div class="group-formula">{in_html(formula(group, how))}</div>'


def draw_table(run: Run, group: Group, *, by_advantage: bool) -> None:
    """The exact arithmetic, a line for each completion: six significant digits of everything, as stored."""
    how, marks = stored_estimator(run.config), extremes(group)
    rows = []
    for completion in order_of(group.completions, by_advantage=by_advantage):
        row: dict[str, str | int | None] = {"#": completion.index + 1, "best, worst": marks.get(completion.index, "")}
        for term in terms(completion, run.config):
            row["KL penalty" if term.score.name == KL_PENALTY else term.score.name] = spell_term(term)
        row |= {
            "reward": exact(completion.reward),
            "advantage": exact(completion.advantage, sign=True),
            "tokens": completion.token_count if measured(completion) else None,
            "ended": FINISHED[completion.finish_reason] if measured(completion) else "not recorded",
            "how": spell_advantage(completion, group, how),
        }
        rows.append(row)
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        key=f"arithmetic-{group.id}",
        height="content" if len(group.completions) <= 24 else 800,
        column_config={
            "#": st.column_config.NumberColumn("#", width=45),
            "best, worst": st.column_config.TextColumn("", width=60),
            "how": st.column_config.TextColumn("how the advantage came about", width="large"),
        },
    )
