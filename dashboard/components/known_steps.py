"""The steps of a run that have groups. A long run has many, so that only what is new is fetched."""

from typing import NamedTuple

import streamlit as st

from backend.contract.groups import StepSummary
from backend.contract.records import Run
from dashboard.session import client, guard

_KEY = "known-steps"


class _Known(NamedTuple):
    """What this session knows of the one run that it looks at; a resume takes steps back, some time after its attempt is claimed."""

    run_id: int
    attempt: int
    done: int  # steps of the run, when this was asked
    steps: list[StepSummary]


def known_steps(run: Run) -> list[StepSummary]:
    """All of them, in order."""
    known: _Known | None = st.session_state.get(_KEY)
    steps: list[StepSummary] = []
    if known and (known.run_id, known.attempt) == (run.id, run.attempt) and known.done <= run.progress.step:
        steps = known.steps[:-1]  # all still of its history; but groups may have come to the newest one since
    while True:
        with guard():
            new = client().steps(run.id, after_step=steps[-1].step if steps else None)
        if not new:
            st.session_state[_KEY] = _Known(run.id, run.attempt, run.progress.step, steps)
            return steps
        steps = [*steps, *new]
