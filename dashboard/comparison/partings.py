"""Where forks leave the run that they come from, and what is the first that differs."""

from collections.abc import Mapping, Sequence

import streamlit as st

from backend.contract.inspection import Difference
from backend.contract.records import TERMINAL, Run
from dashboard.comparison.selection import label
from dashboard.format import count, plain
from dashboard.session import client, guard


def draw_partings(runs: Sequence[Run], shared: Mapping[int, int]) -> None:
    """A line for each fork: from which step its curve is its own, and in which group it first says something else."""
    known = {run.id: run for run in runs}
    for run_id in shared:
        run = known[run_id]
        other = next((one for one in runs if one.id == run.parent_id), None) or next(
            one for one in runs if one.id != run_id
        )
        with guard():
            found = _difference(run, other)
        st.caption(f":material/fork_right: {plain(words(found, label(run), label(other)))}")


def words(found: Difference, one: str, other: str) -> str:
    """What is known of the parting, as a sentence."""
    begins = f"{one} and {other} are the same up to step {count(found.shared)}, which is drawn once."
    if found.step is None:
        if found.compared == found.shared:
            return f"{begins} One of them has no step after that yet."
        return f"{begins} Up to step {count(found.compared)} they draw the same prompts and say the same."
    if found.what == "prompt":
        return f"{begins} From step {count(found.step)}, group {found.group_index}, on they draw other prompts."
    return f"{begins} They draw the same prompts; the first completions that differ are of step {count(found.step)}, group {found.group_index}."


def _difference(run: Run, other: Run) -> Difference:
    if run.status in TERMINAL and other.status in TERMINAL:
        return _of_ended((run.id, run.attempt), (other.id, other.attempt))
    return client().difference(run.id, other.id)


@st.cache_data(ttl=600, max_entries=64, show_spinner=False)
def _of_ended(one: tuple[int, int], other: tuple[int, int]) -> Difference:
    return client().difference(one[0], other[0])
