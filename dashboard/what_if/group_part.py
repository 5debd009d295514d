"""One group before and after: a picture, every digit, and what the clip range does to the tokens that have a trace."""

from collections.abc import Sequence
from math import isclose
from typing import NamedTuple

import streamlit as st

from backend.contract.client import ApiError
from backend.contract.groups import TokenTrace
from backend.contract.inspection import CompletionScores
from dashboard.algorithm.recomputation import Own, Recomputed, Settings, StepArrays
from dashboard.algorithm.rewards import exact
from dashboard.algorithm.surrogates import free_range
from dashboard.components.chart import heading, show
from dashboard.components.synced import chosen as choose
from dashboard.components.table import Column, draw
from dashboard.format import MISSING, counted, number, percent, signed
from dashboard.session import client, guard
from dashboard.what_if.changes import Traced, pushed, traced
from dashboard.what_if.controls import TOKENS
from dashboard.what_if.figures import change_figure, tokens_figure
from dashboard.wording import in_words

ON_POLICY = "With one update per batch every ratio is exactly 1, so no range clips anything, and each token's surrogate is its advantage."
_TALLEST = 600


def digits(value: float | None) -> str:
    """Six digits, as all the arithmetic of a group has them; a completion that nothing could score has none."""
    return MISSING if value is None or value != value else exact(value + 0.0)


def _change(before: float | None, after: float) -> str:
    if before is None:
        return "not trained on"
    size = "as before" if isclose(before, after, rel_tol=1e-9) else "more" if abs(after) > abs(before) else "less"
    return pushed(before, after) or size


class _Kept(NamedTuple):
    """A completion whose tokens were kept, as it was and under the chosen settings."""

    completion: CompletionScores
    before: Traced
    after: Traced


def _shares(before: float, after: float) -> str:
    return f"{percent(float(before))} → {percent(float(after))}"


def _mean(tokens: Traced) -> str:
    return signed(float(tokens.surrogate.mean(dtype="float64"))) if len(tokens.surrogate) else MISSING


# a completion with its reward and its advantage as they would have been
_COMPLETIONS: Sequence[Column[tuple[CompletionScores, float, float]]] = (
    Column("#", lambda row: row[0].index + 1, 40, kind="number"),
    Column("reward", lambda row: digits(row[0].reward), kind="figure"),
    Column("reward, what if", lambda row: digits(row[1]), kind="figure"),
    Column("advantage", lambda row: digits(row[0].advantage), kind="figure"),
    Column("advantage, what if", lambda row: digits(row[2]), kind="figure"),
    Column("pushed", lambda row: _change(row[0].advantage, row[2])),
)
_CLIPPED: Sequence[Column[_Kept]] = (
    Column("#", lambda one: one.completion.index + 1, kind="number"),
    Column("tokens", lambda one: len(one.before.ratio), kind="number"),
    Column("ratio", lambda one: f"{number(float(one.before.ratio.min()))} … {number(float(one.before.ratio.max()))}"),
    Column("clipped below", lambda one: _shares(one.before.low.mean(), one.after.low.mean())),
    Column("clipped above", lambda one: _shares(one.before.high.mean(), one.after.high.mean())),
    Column("mean surrogate", lambda one: f"{_mean(one.before)} → {_mean(one.after)}"),
)


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
    rows = zip(completions, after.rewards_P_G[place].tolist(), advantages, strict=False)
    with numbers:
        draw(list(rows), _COMPLETIONS, key="what-if-table", height="content" if len(completions) <= 16 else _TALLEST)


@st.cache_resource(ttl=600, max_entries=64, show_spinner=False)
def load_trace(completion_id: int) -> TokenTrace | None:
    """The completion's tokens; None where they are not kept any more."""
    try:
        return client().tokens(completion_id)
    except ApiError as refusal:
        if refusal.status == 404:
            return None
        raise


def draw_tokens(own: Own, chosen: Settings, step: StepArrays, after: Recomputed, place: int) -> None:
    """The group's traced completions; a sentence where there is nothing to clip."""
    st.markdown(
        heading(
            "Clip range",
            "its effect is known only for completions with a token trace (by default the best and the worst)",
        )
    )
    if free_range(own.settings.surrogate) is None:
        st.caption(f"{in_words(own.settings.surrogate.kind)} has no clip range.")
        return
    kept = _kept(own, chosen, step, after, place)
    if not kept:
        st.caption("No token values of this group were kept, or it was not trained on.")
        return
    if all((one.before.ratio == 1).all() for one in kept):
        st.caption(ON_POLICY)
        return
    picture, numbers = st.columns([1, 1.15], gap="medium")
    with numbers:
        draw(kept, _CLIPPED, key="what-if-clipped")
        tokens = sum(len(one.before.ratio) for one in kept)
        before = sum(int((one.before.low | one.before.high).sum()) for one in kept)
        now = sum(int((one.after.low | one.after.high).sum()) for one in kept)
        st.caption(f"Clipped: {before} of {counted(tokens, 'token')} with a trace; with the chosen range {now}.")
    with picture, st.container(key="what-if-tokens"):
        options = [str(one.completion.index + 1) for one in kept]
        best = max(kept, key=lambda one: one.completion.reward if one.completion.reward is not None else float("-inf"))
        which = choose("Completion", TOKENS, str(best.completion.index + 1), options, words=str)
        one = kept[options.index(which)]
        show(
            tokens_figure(one.before, one.after),
            key="what-if-tokens-chart",
            about="Each token's surrogate, stored and what if; clipped tokens are crossed",
        )
        st.caption("A red cross marks a clipped token: the clip range limits its pull.")


def _kept(own: Own, chosen: Settings, step: StepArrays, after: Recomputed, place: int) -> list[_Kept]:
    found = []
    for at, completion in enumerate(step.groups[place].completions):
        if not completion.has_trace:
            continue
        with guard():
            trace = load_trace(completion.id)
        if trace is None:
            continue
        # A critic's advantages differ from token to token: those are the trace's own.
        stored = None if own.from_critic else completion.advantage
        recomputed = None if chosen.advantage.reads == "tokens" else float(after.advantages_P_G[place, at])
        before, now = traced(trace, own.settings.surrogate, stored), traced(trace, chosen.surrogate, recomputed)
        if before is not None and now is not None:
            found.append(_Kept(completion, before, now))
    return found
