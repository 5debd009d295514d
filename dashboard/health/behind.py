"""The way from a hint to the groups and completions behind it."""

import streamlit as st

from backend.contract.health import Evidence
from backend.contract.records import Run
from dashboard.components.address import GROUPS, SEARCH
from dashboard.components.group_rows import WORDS
from dashboard.format import count
from dashboard.session import link


def draw_links(run: Run, evidence: Evidence) -> None:
    """A link to the groups of the step that shows it best, and one to the completions of all its steps."""
    if run.kind != "grpo":
        return
    with st.container(horizontal=True):
        if evidence.finish_reason is not None:
            link(
                "run",
                _completions(evidence),
                icon=":material/manage_search:",
                id=run.id,
                tab=SEARCH.lower(),
                finish=evidence.finish_reason,
                steps_from=evidence.from_step,
                steps_to=evidence.to_step,
            )
        if evidence.step is not None:
            state = WORDS[evidence.state] if evidence.state else None
            link(
                "run",
                f"Open the {f'{state} ' if state else ''}groups of step {count(evidence.step)}",
                icon=":material/grid_view:",
                id=run.id,
                tab=GROUPS.lower(),
                step=evidence.step,
                show=state,
            )


def _completions(evidence: Evidence) -> str:
    ended = "cut at the limit" if evidence.finish_reason == "length" else "that ended by themselves"
    return f"Find the completions {ended} (steps {count(evidence.from_step)} to {count(evidence.to_step)})"
