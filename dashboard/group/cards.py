"""The completions of a group as cards: what each got and why, then what it says. Every letter from elsewhere is escaped."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from backend.contract.advantage import Estimator
from backend.contract.base import Json
from backend.contract.groups import CompletionRecord, Group
from backend.contract.reward import KL_PENALTY
from dashboard.algorithm.estimators import spell_advantage, stored_estimator
from dashboard.algorithm.rewards import Term, exact, extremes, spell_term, terms
from dashboard.charts.group import scale_of
from dashboard.charts.palette import advantage_colour, reward_colours
from dashboard.completion_text import TextLook, draw_rendered, text_html
from dashboard.format import counted, number, percent, signed
from dashboard.status import FINISHED, measured
from dashboard.text import in_html

BAR_DIGITS = 4  # significant ones beside a bar; the pointer brings all six


@dataclass(frozen=True)
class GroupLook:
    """What the cards of a group share: one scale for the bars, one for the colours, one way to compute."""

    group: Group
    config: Mapping[str, Json]
    how: Estimator
    marks: Mapping[int, str]  # index -> best or worst
    rewards: Mapping[str, str]  # component -> its colour
    lowest: float  # the ends of the bars; 0 lies within
    highest: float
    strongest: float  # the largest advantage, which has the full colour

    def colour(self, completion: CompletionRecord) -> str:
        """Of its advantage; a sample that nothing was asked to score is grey, not in the colour of an error."""
        unscored = completion.reward is None and bool(completion.rewards) and not completion.unweighed
        return advantage_colour(None if unscored else completion.advantage or 0.0, self.strongest)


def look_at(group: Group, config: Mapping[str, Json]) -> GroupLook:
    """The group's scales. A component's bar is full at its weight, or at the most that any completion got."""
    every = [term for completion in group.completions for term in terms(completion, config)]
    values = [value for term in every for value in (term.value, term.score.weight) if value is not None]
    return GroupLook(
        group,
        config,
        stored_estimator(config),
        extremes(group),
        reward_colours(list(dict.fromkeys(term.score.name for term in every))),
        min([0.0, *(term.value for term in every if term.value is not None)]),
        max([0.0, *values]) or 1.0,
        scale_of(group.completions),
    )


def card_html(completion: CompletionRecord, look: GroupLook, shown: TextLook, alike: Sequence[int] = ()) -> str:
    """The inside of a card: the account, the text, and what was measured. `alike` are the indices of all for which it stands."""
    return (
        f'<div class="completion"><div class="account">{_head(completion, look, alike)}{_account(completion, look)}</div>'
        f"{'' if shown.markdown else text_html(completion, shown)}{_measures(completion, of_several=len(alike) > 1)}</div>"
    )


def account_html(completion: CompletionRecord, look: GroupLook) -> str:
    """A card without its text."""
    return f'<div class="completion">{_head(completion, look)}{_account(completion, look)}{_measures(completion)}</div>'


def _head(completion: CompletionRecord, look: GroupLook, alike: Sequence[int] = ()) -> str:
    indices = alike or (completion.index,)
    marks = [look.marks[index] for index in indices if index in look.marks]
    times = [f"× {len(indices)}"] if len(indices) > 1 else []
    parts = [f'<span class="place">{" · ".join([f"<b>{places(indices)}</b>", *times, *marks])}</span>']
    if completion.reward is not None:
        parts.append(f"<span>reward <b>{number(completion.reward)}</b></span>")
    elif completion.unweighed:
        parts.append('<span title="The weights of the rewards were not recorded.">reward not recorded</span>')
    elif completion.rewards:
        parts.append('<span class="unscored" title="It moves neither the mean nor the policy.">unscored</span>')
    if completion.advantage is not None and (completion.reward is not None or completion.unweighed):
        colour, words = look.colour(completion), signed(completion.advantage)
        parts.append(f'<span class="chip" title="advantage" style="background:{colour}">A {words}</span>')
    return f'<div class="head">{" ".join(parts)}</div>'


def _account(completion: CompletionRecord, look: GroupLook) -> str:
    """A bar for each reward component, their sum, and the advantage that came of it."""
    if not completion.rewards:
        return ""
    bars = "".join(_bar(term, look) for term in terms(completion, look.config))
    advantage = ""
    if completion.advantage is not None or completion.reward is None:
        spelled = escape(spell_advantage(completion, look.group, look.how))
        advantage = f'<div class="sum"><span>advantage</span><span>{spelled}</span></div>'
    total = f'<span>total</span><span></span><span></span><b class="value">{exact(completion.reward)}</b>'
    return f'<div class="bars">{bars}{total}</div>{advantage}'


def _bar(term: Term, look: GroupLook) -> str:
    name = "KL penalty" if term.score.name == KL_PENALTY else term.score.name
    value = term.value
    span = look.highest - look.lowest
    low, high = sorted((0.0, value or 0.0))
    left, width = (low - look.lowest) / span, (high - low) / span
    fill = f"left:{left:.2%};width:{width:.2%};background:{look.rewards[term.score.name]}"
    zero = f'<i class="zero" style="left:{-look.lowest / span:.2%}"></i>' if look.lowest < 0 else ""
    shown = f'<b class="value" title="{exact(value)}">{exact(value, digits=BAR_DIGITS)}</b>'
    bar = (
        f'<span class="name" title="{in_html(name)}">{in_html(name)}</span>'
        f'<span class="track"><i style="{fill}"></i>{zero}</span>'
        f'<span class="product" title="{in_html(spell_term(term))}">{in_html(spell_term(term, digits=BAR_DIGITS))}</span>{shown}'
    )
    if term.score.error:
        bar += (
            f'<details class="error"><summary>{in_html(name)} could not score this</summary>'
            f'<div class="traceback">{in_html(term.score.error)}</div></details>'
        )
    return bar


def _measures(completion: CompletionRecord, *, of_several: bool = False) -> str:
    """Length, how it ended, and per-sequence numbers where they were computed."""
    ended = f'<span class="{completion.finish_reason}">{FINISHED[completion.finish_reason]}</span>'
    turns = f"{counted(len(completion.turns), 'turn')} · " if completion.turns else ""
    length = f"{counted(completion.token_count, 'token')} · {ended}" if measured(completion) else "length not recorded"
    lines: list[str] = []
    per_token = (("KL", completion.kl_mean), ("entropy", completion.entropy_mean))
    nats = " · ".join(f"{name} {number(value)}" for name, value in per_token if value is not None)
    means = [f"{nats} nats per token"] if nats else []
    means += [
        f"{name} {text}"
        for name, value, text in (
            ("ratio", completion.ratio_mean, exact(completion.ratio_mean)),
            ("clipped", completion.clipped_share, percent(completion.clipped_share)),
        )
        if value is not None
    ]
    lines += [" · ".join(means)] if means else []
    before, after = completion.logprob_sum, completion.logprob_sum_after
    if before is not None and after is not None:
        lines.append(f"after this update: log-prob (sum) {number(before)} → {number(after)} ({signed(after - before)})")
    elif before is not None:
        lines.append(f"log-prob (sum) {number(before)}")
    of_one = [f"numbers of completion {completion.index + 1}:"] if of_several and lines else []
    lines = [f"{turns}{length}", *of_one, *lines]
    about = "Log-prob is the sum over the completion's tokens; KL, entropy and ratio are the means. All but the ratio are in nats."
    return f'<div class="measures" title="{escape(about)}">{"<br>".join(lines)}</div>'


def order_of(completions: Sequence[CompletionRecord], *, by_advantage: bool) -> list[CompletionRecord]:
    """As sampled, or the most reinforced first; those without an advantage last."""
    if not by_advantage:
        return list(completions)
    return sorted(completions, key=lambda one: (one.advantage is None, -(one.advantage or 0.0)))


def equal_ones(completions: Sequence[CompletionRecord]) -> list[list[CompletionRecord]]:
    """The completions by what they say, how they ended and what they got: those that are equal in all of it stand together."""
    found: dict[tuple[object, ...], list[CompletionRecord]] = {}
    for one in completions:
        scores = tuple((score.name, score.raw, score.error) for score in one.rewards)
        same = (one.text, tuple(one.turns), one.token_count, one.finish_reason, one.reward, one.advantage, scores)
        found.setdefault(same, []).append(one)
    return list(found.values())


def places(indices: Sequence[int]) -> str:
    """Where completions stand in their group, counted from 1: 1–8, or 1, 3–5."""
    ranges: list[list[int]] = []
    for index in sorted(indices):
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ", ".join(f"{low + 1}" if low == high else f"{low + 1}–{high + 1}" for low, high in ranges)


STYLE = Path(__file__).with_name("group.css")
STACKED_COLUMNS = 100  # letters in a line of a card that has the page's width


def draw_cards(
    group: Group,
    config: Mapping[str, Json],
    *,
    by_advantage: bool,
    visible: bool,
    full: bool = False,
    stacked: bool = False,
    apart: bool = False,
    markdown: bool = False,
    opened: int | None = None,
    draw_foot: Callable[[CompletionRecord], None] | None = None,
) -> None:
    """The group's completions, each with its left edge in the colour of its advantage; `draw_foot` draws what can be done with one.

    Equal ones share a card unless they are to stand `apart`. The one at the index `opened` is shown elsewhere.
    """
    look = look_at(group, config)
    shown = TextLook(visible, full, STACKED_COLUMNS if stacked else TextLook.columns, markdown)
    st.html(STYLE)
    edges = "".join(
        f".st-key-card-{one.id}, .st-key-opened-{one.id} {{ border-left: 4px solid {look.colour(one)}; }}"
        for one in group.completions
    )
    st.html(f"<style>{edges}</style>")
    with st.container(key=f"cards-{'stacked' if stacked else 'grid'}-{group.id}"):
        left = [one for one in order_of(group.completions, by_advantage=by_advantage) if one.index != opened]
        for completion, *others in [[one] for one in left] if apart else equal_ones(left):
            with st.container(border=True, height="stretch", key=f"card-{completion.id}"):
                st.html(card_html(completion, look, shown, [one.index for one in (completion, *others)]))
                if markdown:
                    draw_rendered(completion, f"{completion.id}", full=full)
                if draw_foot is not None:
                    with foot(f"card-{completion.id}"):
                        draw_foot(completion)


def foot(key: str) -> DeltaGenerator:
    """A card's last line, of small buttons."""
    return st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"foot-{key}")
