"""What the backend says of a run's health, asked at most every few seconds however often a page is drawn."""

import streamlit as st

from backend.contract.health import Health
from backend.contract.records import TERMINAL, Run
from dashboard.session import client, guard

SECONDS = 5.0


def health_of(run: Run) -> Health:
    """The run's hints, as they were at most a few seconds ago."""
    with guard():
        return _health(run.id, run.status, run.progress.step)


def looks_every(run: Run) -> float | None:
    """Seconds between two looks. A worker falls silent without a step, so that the run's steps are no clock for this."""
    return SECONDS if run.status not in TERMINAL and st.session_state.get("live", True) else None


@st.cache_data(ttl=SECONDS, max_entries=64, show_spinner=False)
def _health(run_id: int, status: str, step: int) -> Health:  # noqa: ARG001  (a run that moved is asked for anew)
    return client().health(run_id)
