"""The clip range on the tokens that were kept: how many it cuts, and what each token's surrogate would be."""

from typing import NamedTuple

import pandas as pd
import streamlit as st

from backend.contract.inspection import CompletionScores
from dashboard.algorithm.recomputation import Own, Recomputed, Settings, StepArrays
from dashboard.algorithm.surrogates import free_range
from dashboard.components.chart import heading, show
from dashboard.components.synced import chosen as choose
from dashboard.format import MISSING, counted, number, percent, signed
from dashboard.session import guard
from dashboard.what_if.controls import TOKENS
from dashboard.what_if.figures import tokens_figure
from dashboard.what_if.loading import load_trace
from dashboard.what_if.traced import Traced, traced
from dashboard.wording import in_words

ON_POLICY = "One update on each batch: every ratio is exactly 1, so no range clips anything, and each token's surrogate is its advantage."


class _Kept(NamedTuple):
    """A completion whose tokens were kept, as it was and under the chosen settings."""

    completion: CompletionScores
    before: Traced
    after: Traced


def draw_tokens(own: Own, chosen: Settings, step: StepArrays, after: Recomputed, place: int) -> None:
    """The group's traced completions; a sentence where there is nothing to clip."""
    st.markdown(heading("Clip range", "of the traced completions only: by default the best and the worst"))
    if free_range(own.settings.surrogate) is None:
        st.caption(f"{in_words(own.settings.surrogate.kind)} has no clip range.")
        return
    kept = _kept(own, chosen, step, after, place)
    if not kept:
        st.caption("No tokens of this group were kept, or they passed through no model.")
        return
    if all((one.before.ratio == 1).all() for one in kept):
        st.caption(ON_POLICY)
        return
    picture, numbers = st.columns([1, 1.15], gap="medium")
    with numbers:
        _draw_table(kept)
    with picture, st.container(key="what-if-tokens"):
        _draw_one(kept)


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


def _draw_table(kept: list[_Kept]) -> None:
    rows = [
        {
            "#": one.completion.index + 1,
            "tokens": len(one.before.ratio),
            "ratio": f"{number(float(one.before.ratio.min()))} … {number(float(one.before.ratio.max()))}",
            "clipped below": _shares(one.before.low.mean(), one.after.low.mean()),
            "clipped above": _shares(one.before.high.mean(), one.after.high.mean()),
            "mean surrogate": f"{_mean(one.before)} → {_mean(one.after)}",
        }
        for one in kept
    ]
    st.dataframe(pd.DataFrame(rows), key="what-if-clipped", hide_index=True, height="content")
    tokens = sum(len(one.before.ratio) for one in kept)
    cut = [
        sum(int((each.low | each.high).sum()) for each in side)
        for side in ([one.before for one in kept], [one.after for one in kept])
    ]
    kept_tokens = counted(tokens, "token")
    st.caption(f"Clipped: {cut[0]} of {kept_tokens} that were kept; with the chosen range {cut[1]}.")


def _draw_one(kept: list[_Kept]) -> None:
    options = [str(one.completion.index + 1) for one in kept]
    best = max(kept, key=lambda one: one.completion.reward if one.completion.reward is not None else float("-inf"))
    which = choose("Completion", TOKENS, str(best.completion.index + 1), options, words=str)
    one = kept[options.index(which)]
    show(
        tokens_figure(one.before, one.after),
        key="what-if-tokens-chart",
        about="Each token's surrogate, stored and what if; clipped tokens are crossed",
    )
    st.caption("A red cross marks a clipped token: its weight is cut.")


def _shares(before: float, after: float) -> str:
    return f"{percent(float(before))} → {percent(float(after))}"


def _mean(tokens: Traced) -> str:
    return signed(float(tokens.surrogate.mean(dtype="float64"))) if len(tokens.surrogate) else MISSING
