"""What stands in the place of a run's charts until its first step is done: what is happening, and when the first point comes."""

import streamlit as st

from backend.contract.client import ApiError, Unreachable
from backend.contract.preflight import TimeEstimate
from backend.contract.records import PHASES, STARTING, TERMINAL, Run
from dashboard.components.live import tick_of_whole_page
from dashboard.format import count, duration, plain
from dashboard.session import client, guard, in_the_way, run_now
from dashboard.status import phase_in_words

_ON_PAIRS = "A step reads pairs and updates the weights"
_SAMPLED = "A step samples completions, scores them and updates the weights"
_ENDED = "**No step was done, so there is nothing to draw.** The Log says what happened until the end."


def draw_first_step(run: Run) -> None:
    """Draw what the run is doing; drawn again by itself while the page follows the run."""
    follows = run.status not in TERMINAL and st.session_state.get("live", True)
    st.fragment(_draw, run_every=tick_of_whole_page() if follows else None)(run.id)


def _draw(run_id: int) -> None:
    with guard():
        run = run_now(run_id)
    with st.container(border=True, key="first-step"):
        if run.status in TERMINAL:
            st.markdown(_ENDED)
            return
        st.markdown(f":material/hourglass_empty: **{_doing(run)}**")
        progress = run.progress
        if run.status == "running" and progress.done is not None and progress.total:
            st.progress(min(1.0, progress.done / progress.total))
        st.markdown(
            f"{_SAMPLED if run.by_groups else _ON_PAIRS}; the charts begin when the first one is done.{_takes(run)}"
        )


def _doing(run: Run) -> str:
    """What happens now, in a few words."""
    if run.status == "queued":
        if in_the_way(run.id):
            return "It waits for a worker that can take it"
        place = run.queue_position or 1
        return "It starts as soon as a worker is free" if place == 1 else f"{count(place - 1)} before it in the queue"
    if run.status == "paused":
        return "Paused before its first step was done"
    progress = run.progress
    if progress.phase in (None, STARTING):
        return "A worker has taken the run and starts"
    phase = phase_in_words(progress.phase)
    done = f" {count(progress.done)} of {count(progress.total)}" if progress.done is not None and progress.total else ""
    return f"First step: {phase}{done}" if progress.phase in PHASES else f"Before the first step: {phase}{done}"


def _takes(run: Run) -> str:
    """How long a step is expected to take, if that is known."""
    time = _estimate(run.id)
    if time is None:
        return ""
    basis, _, _ = time.basis.partition(";")  # the rest is about the whole run
    return f" It is expected to take {duration(time.seconds_per_step)} ({plain(basis)})."


@st.cache_data(ttl=60, max_entries=64, show_spinner=False)
def _estimate(run_id: int) -> TimeEstimate | None:
    """Of a step; None for a configuration that an earlier version wrote, and while the backend is away."""
    try:
        return client().preflight(run_now(run_id).config).time
    except (ApiError, Unreachable):
        return None
