"""Every draw of one prompt: the groups that it gave, in one run or in several."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import pandas as pd
import streamlit as st

from backend.contract.groups import GroupSummary
from backend.contract.records import Run
from dashboard.charts.figure import Figure
from dashboard.charts.lines import Look, line_figure
from dashboard.charts.palette import run_colours
from dashboard.components.model_text import one_line
from dashboard.components.stored import highest_reward
from dashboard.format import count, number
from dashboard.group.rows import WORDS
from dashboard.session import client, guard

MOST = 1000  # draws on the page, over all its runs
_PAGE = 200


class Draws(NamedTuple):
    """The prompt's groups, by run and step; of the runs in `cut` only their newest `share`, of the others all."""

    items: list[GroupSummary]
    share: int
    cut: frozenset[int]


def fetch_draws(prompt_id: str, runs: Sequence[int]) -> Draws:
    """The newest draws of each run, each having the same share of `MOST`: none is left out for what another has drawn."""
    share = MOST // max(1, len(runs))
    draws: list[GroupSummary] = []
    cut: list[int] = []
    for run_id in runs:
        newest, more = _fetch_newest(prompt_id, run_id, share)
        draws += newest
        cut += [run_id] if more else []
    return Draws(sorted(draws, key=_by_step), share, frozenset(cut))


def _fetch_newest(prompt_id: str, run_id: int, most: int) -> tuple[list[GroupSummary], bool]:
    """The run's newest draws, and whether there are older ones."""
    draws: list[GroupSummary] = []
    cursor: str | None = None
    while True:
        limit = min(_PAGE, most - len(draws))
        with guard():
            page = client().groups(run_id, prompt_id=prompt_id, sort="-step", limit=limit, cursor=cursor)
        draws += page.items
        cursor = page.next_cursor
        if cursor is None or len(draws) >= most:
            return draws, cursor is not None


def _by_step(draw: GroupSummary) -> tuple[int, int, int]:
    return draw.run_id, draw.step, draw.index


def by_run(draws: Sequence[GroupSummary]) -> dict[int, list[GroupSummary]]:
    """The draws of each run, by step."""
    ordered = sorted(draws, key=_by_step)
    return {run_id: list(group) for run_id, group in groupby(ordered, key=lambda draw: draw.run_id)}


def describe(draw: GroupSummary, several_runs: bool) -> str:
    """One draw in a list of choices."""
    run = f"run #{draw.run_id} · " if several_runs else ""
    state = "" if draw.state == "live" else f" · {WORDS[draw.state]}"
    return f"{run}step {count(draw.step)} · mean {number(draw.reward_mean)}{state}"


def highest(runs: Sequence[Run]) -> float:
    """The reward of an answer that every function of a run scores 1, the highest of the runs."""
    return max((highest_reward(run.config) for run in runs), default=0.0)


def course(draws: Sequence[GroupSummary], runs: Sequence[Run]) -> Figure:
    """The mean reward of each draw over the steps, a line for each run; a click picks the draw, by its id."""
    colours = run_colours([run.id for run in runs])
    labels = {run.id: f"#{run.id} {one_line(run.name)}" for run in runs}
    known = [draw for draw in draws if draw.run_id in labels]
    table = pd.DataFrame(
        {
            "draw": pd.Series([draw.id for draw in known], dtype="int64"),
            "step": pd.Series([draw.step for draw in known], dtype="int64"),
            "x": pd.Series([draw.step for draw in known], dtype="float64"),
            "metric": pd.Series(["mean reward of the draw"] * len(known), dtype="str"),
            "label": pd.Series([labels[draw.run_id] for draw in known], dtype="str"),
            "value": pd.Series([draw.reward_mean for draw in known], dtype="float64"),
            "smooth": pd.Series([draw.reward_mean for draw in known], dtype="float64"),
            "alone": False,
        }
    )
    look = Look(
        colours=tuple((labels[run.id], colours[run.id]) for run in runs),
        from_zero=True,
        dots=True,
        pickable=True,
        picked="draw",  # runs draw the same probes at the same steps
    )
    return line_figure(look, table)


@st.cache_data(ttl=120, max_entries=512, show_spinner=False)
def has_drawn(run_id: int, prompt_id: str) -> bool:
    """Whether the run has drawn the prompt at all."""
    with guard():
        return bool(client().groups(run_id, prompt_id=prompt_id, limit=1).items)
