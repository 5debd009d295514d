"""Where the what-if's numbers come from: one call for a step, one for each trace."""

import streamlit as st

from backend.contract.client import ApiError
from backend.contract.groups import TokenTrace
from dashboard.algorithm.recomputation import StepArrays, arrays_of
from dashboard.session import client


@st.cache_resource(ttl=60, max_entries=16, show_spinner=False)
def load_step(run_id: int, step: int, attempt: int) -> StepArrays | None:  # noqa: ARG001 — a part of the cache's key
    """The step's numbers as of the run's attempt; None where no group was trained on. Raises what the client raises."""
    return arrays_of(client().step_scores(run_id, step).groups)


@st.cache_resource(ttl=600, max_entries=64, show_spinner=False)
def load_trace(completion_id: int) -> TokenTrace | None:
    """The completion's tokens; None where they are not kept any more."""
    try:
        return client().tokens(completion_id)
    except ApiError as refusal:
        if refusal.status == 404:
            return None
        raise
