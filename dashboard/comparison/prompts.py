"""The prompts that several of the runs have drawn, and the way to their groups side by side."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import streamlit as st

from backend.contract.inspection import PromptSummary
from backend.contract.records import TERMINAL, Run
from dashboard.comparison.selection import label
from dashboard.components.address import shown_at_once
from dashboard.components.listing import offer_more
from dashboard.components.table import Column, draw
from dashboard.format import MISSING, count, counted, number
from dashboard.session import client, guard, url
from dashboard.text import one_line

Common: TypeAlias = tuple[str, dict[int, PromptSummary]]  # a prompt's id, and its draws by run
LOOKED = 100  # of each run's prompts, those drawn most often
SHOWN = 30
AT_ONCE = 20  # runs, each of them a request and a column; more on demand
BESIDE = 20  # runs that the page of a prompt takes
_RUNS = "looked"  # in the address: how many runs are searched


def draw_prompts(runs: list[Run]) -> None:
    """Draw a search, and the prompts with each run's rewards for them."""
    sampled = [run for run in runs if run.by_groups and run.attempt]
    asked = sampled[: shown_at_once(_RUNS, AT_ONCE)]
    search = st.text_input(
        "Search prompts", key="prompt", bind="query-params", placeholder="Words of a prompt", width=420
    )
    with guard():
        found = {
            run.id: (_ask_once if run.status in TERMINAL else _ask)(run.id, run.attempt, str(search or ""))
            for run in asked
        }
    if common := in_common(found):
        _draw_table(asked, common[:SHOWN])
    else:
        st.caption("No two of these runs share a prompt among their most drawn ones.")
    if len(asked) < len(sampled):
        st.caption(f"Searched: the first {len(asked)} of {counted(len(sampled), 'run')}.")
        offer_more(len(sampled) - len(asked), "run", _RUNS, AT_ONCE, key="more-prompt-runs")


def _draw_table(asked: Sequence[Run], common: Sequence[Common]) -> None:
    st.caption(
        "Mean reward at the first draw → at the latest draw (number of draws); one value if there was a single draw. For each run, only "
        f"the {LOOKED} prompts that it drew most often are considered. Probes, which every run samples at the same steps, come first; "
        "the others follow, sorted by how many of the runs share them."
    )

    def of_run(run: Run) -> Column[Common]:
        return Column(label(run), lambda one: course(one[1].get(run.id)))

    columns: list[Column[Common]] = [
        Column("prompt", lambda one: one_line(next(iter(one[1].values())).prompt)[:200], "large"),
        Column("probe", lambda one: "probe" if any(draw.probes for draw in one[1].values()) else ""),
        Column("runs", lambda one: count(len(one[1]))),
        *map(of_run, asked),
        Column("side by side", lambda one: side_by_side(*one), 100, kind="link"),
    ]
    draw(common, columns, key="common-prompts")


def in_common(found: Mapping[int, Sequence[PromptSummary]]) -> list[Common]:
    """Prompt -> its draws by run, for prompts of two runs or more: probes first, then the most widely drawn."""
    by_prompt: dict[str, dict[int, PromptSummary]] = {}
    for run_id, prompts in found.items():
        for prompt in prompts:
            by_prompt.setdefault(prompt.prompt_id, {})[run_id] = prompt
    least = min(2, len(found))

    def rank(entry: Common) -> tuple[bool, int, int]:
        draws = entry[1].values()
        return not any(draw.probes for draw in draws), -len(draws), -sum(draw.draws for draw in draws)

    return sorted(((prompt, draws) for prompt, draws in by_prompt.items() if len(draws) >= least), key=rank)


def side_by_side(prompt_id: str, draws: Mapping[int, PromptSummary]) -> str:
    """The address of the prompt's page with the runs that drew it, the first `BESIDE` of them."""
    return url("prompt", prompt=prompt_id, runs=",".join(str(run_id) for run_id in list(draws)[:BESIDE]))


def course(draw: PromptSummary | None) -> str:
    """0.250 → 0.880 (5); of a single draw, its mean."""
    if draw is None:
        return MISSING
    if draw.draws == 1:
        return number(draw.reward_first)
    return f"{number(draw.reward_first)} → {number(draw.reward_last)} ({count(draw.draws)})"


def _ask(run_id: int, attempt: int, search: str) -> list[PromptSummary]:  # noqa: ARG001 — a part of the cache's key
    return client().prompts(run_id, search=search or None, sort="-draws", limit=LOOKED).items


# of an attempt that has ended; the largest sweep has 200 runs: fewer entries than runs, and each redraw would ask for all of them again
_ask_once = st.cache_data(ttl=600, max_entries=256, show_spinner=False)(_ask)
