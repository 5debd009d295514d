"""One completion as a card: what it says, what it got, and how hard it was pushed."""

from collections.abc import Mapping

import streamlit as st

from backend.contract.base import Json
from backend.contract.groups import CompletionRecord, Group
from dashboard.charts.group import advantage_scale
from dashboard.charts.palette import advantage_colour
from dashboard.components.group_arithmetic import (
    Estimator,
    estimator,
    exact,
    extremes,
    spell_advantage,
    spell_total,
    terms,
)
from dashboard.components.model_text import show_text
from dashboard.components.token_table import draw_tokens
from dashboard.format import counted, number, percent, plain, signed


def draw_cards(group: Group, config: Mapping[str, Json], *, by_advantage: bool, visible: bool) -> None:
    """All completions of the group, two in a row."""
    how = estimator(config)
    marks = extremes(group)
    colours = _colours(group)
    st.html(_edges(colours))
    ordered = sorted(group.completions, key=_by_advantage) if by_advantage else group.completions
    for start in range(0, len(ordered), 2):
        for column, completion in zip(st.columns(2), ordered[start : start + 2], strict=False):
            with column, st.container(border=True, height="stretch", key=f"card-{completion.id}"):
                _head(completion, marks.get(completion.index), colours[completion.id])
                show_text(completion.text, visible=visible)
                _account(completion, group, config, how)
                _measures(completion)
                if completion.has_trace:
                    draw_tokens(completion.id)


def _by_advantage(completion: CompletionRecord) -> tuple[bool, float]:
    return completion.advantage is None, -(completion.advantage or 0.0)


def _colours(group: Group) -> dict[int, str]:
    """Each completion's colour; a sample that nothing was asked to score is grey, not in the colour of an error."""
    scale = advantage_scale([completion.advantage for completion in group.completions])
    return {
        completion.id: advantage_colour(
            None if completion.reward is None and completion.rewards else completion.advantage or 0.0, scale
        )
        for completion in group.completions
    }


def _edges(colours: Mapping[int, str]) -> str:
    """Each card's left edge in the colour of its advantage."""
    rules = "".join(f".st-key-card-{key} {{ border-left: 5px solid {colour}; }}" for key, colour in colours.items())
    return f"<style>{rules}</style>"


def _head(completion: CompletionRecord, mark: str | None, colour: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"**{completion.index + 1}**{f' · {mark}' if mark else ''}", width="content")
        if completion.reward is not None:
            st.markdown(f"reward **{number(completion.reward)}**", width="content")
        if completion.advantage is not None and completion.reward is not None:
            st.html(_chip(completion.advantage, colour), width="content")
        st.markdown(f":gray[{counted(completion.token_count, 'token')} · {completion.finish_reason}]", width="content")
        if completion.finish_reason == "length":
            st.badge("truncated", icon=":material/content_cut:", color="orange", help="Cut at the token limit.")
        if completion.reward is None and completion.rewards:
            st.badge(
                "unscored", icon=":material/help:", color="red", help="No advantage: it moves neither mean nor policy."
            )


def _chip(advantage: float, colour: str) -> str:
    style = f"background:{colour};color:white;border-radius:0.6rem;padding:0.1rem 0.55rem;font-weight:600;white-space:nowrap"
    return f'<span style="{style}" title="advantage">A {signed(advantage)}</span>'


def _account(completion: CompletionRecord, group: Group, config: Mapping[str, Json], how: Estimator) -> None:
    """The sum of its reward components, and the advantage that came of it."""
    if not completion.rewards:
        return
    lines = [f"reward     {spell_total(completion, config)}"]
    if completion.advantage is not None:
        lines.append(f"advantage  {spell_advantage(completion, group, how)}")
    st.code("\n".join(lines), language=None, wrap_lines=True)
    for term in terms(completion, config):
        if term.score.error:
            st.markdown(f":red[{plain(term.score.name)} could not score this:]")
            show_text(term.score.error)


def _measures(completion: CompletionRecord) -> None:
    """Per-sequence numbers, where they were computed."""
    before, after = completion.logprob_sum, completion.logprob_sum_after
    parts = []
    if before is not None:
        moved = f" → {number(after)} ({signed(after - before)})" if after is not None else ""
        parts.append(f"log-prob {number(before)}{moved}")
    if completion.kl_mean is not None:
        parts.append(f"KL {number(completion.kl_mean)}")
    if completion.entropy_mean is not None:
        parts.append(f"entropy {number(completion.entropy_mean)}")
    if completion.ratio_mean is not None:
        parts.append(f"ratio {exact(completion.ratio_mean)}")
    if completion.clipped_share is not None:
        parts.append(f"clipped {percent(completion.clipped_share)}")
    if parts:
        st.caption(" · ".join(parts), help="Sums and means over the completion's tokens, in nats.")
