"""The prompts that several of the runs have drawn, and the way to their groups side by side."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

import streamlit as st

from backend.contract.inspection import CommonPrompt, PromptSummary
from backend.contract.records import TERMINAL, Run
from dashboard.comparison.selection import label
from dashboard.components.address import shown_at_once
from dashboard.components.listing import offer_more
from dashboard.components.table import Column, draw
from dashboard.format import MISSING, count, counted, number
from dashboard.session import client, guard, url
from dashboard.text import one_line

LISTED = 30
AT_ONCE = 20  # runs, each of them a column; more on demand
BESIDE = 20  # runs that the page of a prompt takes
_RUNS = "looked"  # in the address: how many runs are searched


def draw_prompts(runs: list[Run]) -> None:
    """Draw a search, and the prompts with each run's rewards for them."""
    sampled = [run for run in runs if run.by_groups and run.attempt]
    asked = sampled[: shown_at_once(_RUNS, AT_ONCE)]
    search = st.text_input(
        "Search prompts", key="prompt", bind="query-params", placeholder="Words of a prompt", width=420
    )
    ended = all(run.status in TERMINAL for run in asked)
    with guard():
        common = (_ask_once if ended else _ask)(tuple((run.id, run.attempt) for run in asked), str(search or ""))
    if common:
        _draw_table(asked, common)
    else:
        words = "No prompt that these runs share has this text." if search else "No two of these runs share a prompt."
        st.caption(f"{words} Prompts are the same if their texts are, spaces at the ends aside.")
    if len(asked) < len(sampled):
        st.caption(f"Searched: the first {len(asked)} of {counted(len(sampled), 'run')}.")
        offer_more(len(sampled) - len(asked), "run", _RUNS, AT_ONCE, key="more-prompt-runs")


def _draw_table(asked: Sequence[Run], common: Sequence[CommonPrompt]) -> None:
    st.caption(
        "Mean reward at the first draw → at the latest draw (number of draws); one value if there was a single draw. Prompts are the same if "
        "their texts are. Probes, which a run samples every few steps, come first; the others follow, sorted by how many of the runs share "
        f"them; the first {LISTED} are shown."
    )

    def of_run(run: Run) -> Column[CommonPrompt]:
        return Column(label(run), lambda one: course(one.draws.get(run.id)))

    columns: list[Column[CommonPrompt]] = [
        Column("prompt", lambda one: one_line(next(iter(one.draws.values())).prompt)[:200], "large"),
        Column("probe", lambda one: "probe" if any(draw.probes for draw in one.draws.values()) else ""),
        Column("runs", lambda one: count(len(one.draws))),
        *map(of_run, asked),
        Column("side by side", lambda one: side_by_side(one.draws), 100, kind="link"),
    ]
    draw(common, columns, key="common-prompts")


def side_by_side(draws: Mapping[int, PromptSummary]) -> str:
    """The address of the prompt's page with the runs that drew it, the first `BESIDE` of them, and the ids that it has there."""
    beside = dict(list(draws.items())[:BESIDE])
    ids = dict.fromkeys(draw.prompt_id for draw in beside.values())
    return f"{url('prompt', runs=','.join(map(str, beside)))}&{urlencode([('prompt', one) for one in ids])}"


def course(draw: PromptSummary | None) -> str:
    """0.250 → 0.880 (5); of a single draw, its mean."""
    if draw is None:
        return MISSING
    if draw.draws == 1:
        return number(draw.reward_first)
    return f"{number(draw.reward_first)} → {number(draw.reward_last)} ({count(draw.draws)})"


def _ask(attempts: tuple[tuple[int, int], ...], search: str) -> list[CommonPrompt]:
    return client().common_prompts(runs=[run_id for run_id, _ in attempts], search=search or None, limit=LISTED).items


_ask_once = st.cache_data(ttl=600, max_entries=24, show_spinner=False)(_ask)  # of attempts that have ended
