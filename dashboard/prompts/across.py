"""One prompt across runs: how each run answered it at about the same step."""

from collections.abc import Sequence

import streamlit as st

from backend.contract.groups import GroupSummary
from backend.contract.records import Run
from dashboard.charts.group import reward_squares
from dashboard.components.address import number_in_address, write
from dashboard.components.model_text import show_text
from dashboard.components.told import heard, tell
from dashboard.format import count, counted, number
from dashboard.prompts.draws import Draws, by_run, highest
from dashboard.session import link

_BESIDE = 3  # runs in one line
_TALL = 160  # pixels of a text


def draw_across(draws: Draws, runs: Sequence[Run]) -> None:
    """A step, and each run's last draw up to it, with what its best completion ends with."""
    steps = sorted({draw.step for draw in draws.items})
    chosen = number_in_address("at")
    until = max((step for step in steps if chosen is None or step <= chosen), default=steps[0])
    if len(steps) > 1:
        tell("at", until)
        st.select_slider(
            "Each run's last draw up to step",
            steps,
            key="at",
            on_change=heard("at", lambda step: write(at=str(step))),
        )
    groups = by_run(draws.items)
    for start in range(0, len(runs), _BESIDE):
        for column, run in zip(st.columns(_BESIDE), runs[start : start + _BESIDE], strict=False):
            with column, st.container(border=True, height="stretch", key=f"across-{run.id}"):
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
