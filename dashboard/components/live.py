"""When a page that shows a live run has to be drawn again: when the run has moved, and not before."""

from collections.abc import Sequence
from typing import NamedTuple

import streamlit as st

from backend.contract.protocol import EVALUATION
from backend.contract.records import TERMINAL, Run
from dashboard.components.address import browser_knows
from dashboard.session import client, guard

TICK = 1.0  # seconds between two looks at a run that moves


class Moment(NamedTuple):
    """What of a run has to change before a page is drawn anew. Progress inside a step is the header's alone."""

    status: str
    attempt: int
    step: int
    evaluated: tuple[float | None, ...]  # an evaluation follows its step in a report of its own


def moment(run: Run) -> Moment:
    """Where the run stands."""
    evaluated = tuple(value for name, value in run.summary.items() if name.startswith(EVALUATION))
    return Moment(run.status, run.attempt, run.progress.step, evaluated)


def follow(runs: Sequence[Run]) -> None:
    """Draw the page again whenever one of the runs has moved."""
    live = {run.id: moment(run) for run in runs if run.status not in TERMINAL}
    if live:
        st.fragment(_look, run_every=TICK)(live)


def _look(drawn: dict[int, Moment]) -> None:
    with guard():
        moved = any(moment(client().run(run_id)) != known for run_id, known in drawn.items())
    if moved and browser_knows():
        st.rerun()
