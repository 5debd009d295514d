"""A group in a report: why it is there, what it came to, and its completions. Every text from elsewhere is escaped."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from backend.contract.base import Json
from backend.contract.groups import CompletionRecord, Group
from dashboard.algorithm.estimators import stored_estimator
from dashboard.charts.group import strip_figure
from dashboard.components.model_text import in_html
from dashboard.format import count, counted
from dashboard.group.completion_html import TextLook, card_html, look_at, order_of
from dashboard.group.in_words import state_in_words
from dashboard.group.numbers import figures_html
from dashboard.report.pictures import svg

MOST = 16  # completions of a group: of more, the most reinforced and the most discouraged
COLUMNS = 48  # letters in a line of a card


@dataclass(frozen=True)
class Chosen:
    """A group of the report, and why it was chosen."""

    group: Group
    why: str


def group_html(chosen: Chosen, config: Mapping[str, Json]) -> str:
    """The group as a section of the report."""
    group = chosen.group
    words = state_in_words(group, config)
    note = group.bookmark.note if group.bookmark is not None else ""
    return (
        f'<article class="group"><h3>Step {count(group.step)} · group {count(group.index + 1)} '
        f"<small>{in_html(chosen.why)}</small></h3>"
        + (f'<blockquote class="said">{in_html(note)}</blockquote>' if note else "")
        + f'<div class="numbers"><div>{_asked(group)}<p>{_bold(words)}</p>{figures_html(group, stored_estimator(config))}</div>{_strip(group)}</div>'
        + _cards(group, config)
        + "</article>"
    )


def _asked(group: Group) -> str:
    answer = (
        f'<p class="answer">Reference answer <b>{in_html(group.answer)}</b></p>' if group.answer is not None else ""
    )
    return f'<div class="model-text">{in_html(group.prompt or group.prompt_text)}</div>{answer}'


def _strip(group: Group) -> str:
    if group.reward_mean is None:
        return ""
    return f'<div class="strip">{svg(strip_figure(group.completions, group.reward_mean, group.reward_std))}</div>'


def _cards(group: Group, config: Mapping[str, Json]) -> str:
    look = look_at(group, config)
    ordered = order_of(group.completions, by_advantage=True)
    shown = ordered if len(ordered) <= MOST else [*ordered[: MOST // 2], *ordered[-MOST // 2 :]]

    def card(completion: CompletionRecord) -> str:
        inside = card_html(completion, look, TextLook(columns=COLUMNS))
        return f'<div class="card" style="border-left-color:{look.colour(completion)}">{inside}</div>'

    left = counted(len(ordered) - len(shown), "completion")
    rest = f'<p class="left-out">{left} between them are left out.</p>' if len(shown) < len(ordered) else ""
    return f'<div class="cards">{"".join(map(card, shown))}</div>{rest}'


def _bold(words: str) -> str:
    """Our own sentence, whose emphasis is written in Markdown."""
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", in_html(words))
