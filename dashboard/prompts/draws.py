"""Every draw of one prompt: the groups that it gave, in one run or in several, and how each run answered at about the same step."""

import math
from collections.abc import Sequence
from itertools import groupby, islice
from typing import NamedTuple

import streamlit as st

from backend.contract.groups import GroupSummary
from backend.contract.records import Run, Series
from dashboard.charts.figure import Figure
from dashboard.charts.group import reward_squares
from dashboard.charts.lines import Look, line_figure
from dashboard.charts.palette import run_colours
from dashboard.charts.series import table_of
from dashboard.components.address import number_in_address, write
from dashboard.components.listing import across
from dashboard.components.synced import on_choice, sync
from dashboard.format import count, counted, number
from dashboard.group.rows import WORDS
from dashboard.session import client, guard, link, pages_of
from dashboard.stored import highest_reward
from dashboard.text import one_line, show_text

MOST = 1000  # draws on the page, over all its runs
_PAGE = 200
SEARCHED = 1000  # characters of a text
_BESIDE = 3  # runs in one line
_TALL = 160  # pixels of a text


class Draws(NamedTuple):
    """The prompt's groups, by run and step; of the runs in `cut` only their newest `share`, of the others all."""

    items: list[GroupSummary]
    share: int
    cut: frozenset[int]


def fetch_draws(prompt_ids: Sequence[str], runs: Sequence[int]) -> Draws:
    """The newest draws of each run, each having the same share of `MOST`: a run that drew much takes no place from another.

    A run has the prompt under one of the ids.
    """
    share = MOST // max(1, len(runs))
    draws: list[GroupSummary] = []
    cut: list[int] = []
    for run_id in runs:
        tried = (_fetch_newest(prompt_id, run_id, share) for prompt_id in prompt_ids)
        newest, more = next((found for found in tried if found[0]), ([], False))
        draws += newest
        cut += [run_id] if more else []
    return Draws(sorted(draws, key=_by_step), share, frozenset(cut))


def _fetch_newest(prompt_id: str, run_id: int, most: int) -> tuple[list[GroupSummary], bool]:
    """The run's newest draws, and whether there are older ones."""
    every = pages_of(
        lambda cursor: client().groups(run_id, prompt_id=prompt_id, sort="-step", limit=_PAGE, cursor=cursor)
    )
    pages = list(islice(every, math.ceil(most / _PAGE)))
    draws = [draw for page in pages for draw in page.items]
    return draws[:most], len(draws) > most or pages[-1].next_cursor is not None


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
    known = by_run([draw for draw in draws if draw.run_id in labels])
    series = {
        run_id: Series(step=[draw.step for draw in drawn], value=[draw.reward_mean for draw in drawn])
        for run_id, drawn in known.items()
    }
    table = table_of([("mean reward of the draw", labels[run_id], one) for run_id, one in series.items()], 0.0)
    look = Look(
        colours=tuple((labels[run.id], colours[run.id]) for run in runs),
        from_zero=True,
        dots=True,
        pickable=True,
        picked="draw",  # runs draw the same probes at the same steps
    )
    return line_figure(look, table.assign(draw=[draw.id for drawn in known.values() for draw in drawn]))


@st.cache_data(ttl=120, max_entries=64, show_spinner=False)
def ids_by_run(prompt_ids: Sequence[str], text: str, runs: Sequence[int]) -> dict[int, str]:
    """Which of the runs have drawn the prompt, and under which id: a trainer has its own, the text is the same."""
    with guard():
        found = client().common_prompts(runs=runs, search=text[:SEARCHED], limit=100).items
    for prompt in found:
        ids = {run_id: draw.prompt_id for run_id, draw in prompt.draws.items()}
        if not set(prompt_ids).isdisjoint(ids.values()):
            return ids
    return {}


def draw_across(draws: Draws, runs: Sequence[Run]) -> None:
    """A step, and each run's last draw up to it, with what its best completion ends with."""
    steps = sorted({draw.step for draw in draws.items})
    chosen = number_in_address("at")
    until = max((step for step in steps if chosen is None or step <= chosen), default=steps[0])
    if len(steps) > 1:
        sync("at", until)
        st.select_slider(
            "Each run's last draw up to step",
            steps,
            key="at",
            on_change=on_choice("at", lambda step: write(at=str(step))),
        )
    groups = by_run(draws.items)
    for place, run in across(runs, _BESIDE):
        with place, st.container(border=True, height="stretch", key=f"across-{run.id}"):
            _draw_run(run, groups.get(run.id, []), until, highest(runs), cut=run.id in draws.cut)


def _draw_run(run: Run, draws: Sequence[GroupSummary], until: int, top: float, *, cut: bool) -> None:
    """The last of `draws` up to the step `until`; `cut` says that the run has older ones, which are not among them."""
    link("run", f"#{run.id} {run.name}", id=run.id)
    before = [draw for draw in draws if draw.step <= until]
    if not before and cut:
        st.caption(f"Its draws up to step {count(until)} are not on this page, only its newest {count(len(draws))}.")
        return
    if not before:
        st.caption(f"Not drawn up to step {count(until)}.")
        return
    draw = before[-1]
    drawn = f"{'more than ' if cut else ''}{counted(len(before), 'draw')}"
    st.caption(f"step {count(draw.step)} · {drawn} · mean {number(draw.reward_mean)}")
    rewards = [reward for reward in draw.rewards if reward is not None]
    st.image(reward_squares(draw.rewards, draw.advantages, min([0.0, *rewards]), max([top, *rewards])))
    show_text(draw.best or "", height=_TALL)
    link("group", "Open the group", icon=":material/open_in_full:", id=draw.id)
