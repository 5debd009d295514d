"""Explain this step: whether it can be done again exactly, what was explained of it before, and the button."""

import streamlit as st

from backend.contract.client import ApiError
from backend.contract.records import Run
from backend.contract.replay import ReplayOutlook
from dashboard.format import counted, plain
from dashboard.leaving import go
from dashboard.session import client, guard, link, queued
from dashboard.status import look
from dashboard.stored import number_at

_LISTED = 200


def draw_explain(run: Run, step: int) -> None:
    """A quiet button that opens what there is to say; nothing for a run whose steps do not train on groups."""
    if run.kind != "grpo" or step >= run.progress.step:
        return
    with st.popover("Explain this step", icon=":material/biotech:", type="tertiary"):
        st.markdown(
            f"**Why step {step} moved the policy as it did.** The step is done again exactly, from the newest checkpoint before it, and "
            "taken apart: what each group did to the weights, and which completions rose and fell."
        )
        for earlier in _explained(run.id, step):
            link("run", f"Explanation #{earlier.id}: {look(earlier).word}", icon=":material/biotech:", id=earlier.id)
        outlook = _outlook(run.id, step)
        if outlook.config is None:
            st.info(plain(f"It cannot be done again exactly: {outlook.refusal}."), icon=":material/block:")
            return
        before = step - outlook.config.checkpoint
        where = f"checkpoint {outlook.config.checkpoint}" if outlook.config.checkpoint else "the run's beginning"
        st.caption(
            f"From {where}: {counted(before, 'step')} to do again, then this one, on a worker like the one that trained it "
            f"({plain(outlook.config.device)}). Rewards come from the records."
        )
        if st.button(
            f"Explain step {step}", icon=":material/play_arrow:", type="primary", key=f"explain-{run.id}-{step}"
        ):
            away = "The backend does not answer; nothing was started. Try again when it is back."
            replay = queued(lambda: client().replay(run.id, step), away, ":material/cloud_off:")
            if replay is not None:
                go("run", id=replay.id)


def as_replayed(run: Run) -> Run:
    """A replay as a page of groups reads it: with the configuration of the run whose step it is, if that is still there."""
    if run.kind != "replay":
        return run
    try:
        with guard():
            original = client().run(int(number_at(run.config, "run", 0)))
    except ApiError:
        return run
    return run.model_copy(update={"config": original.config})


@st.cache_data(ttl=10, max_entries=64, show_spinner=False)
def _outlook(run_id: int, step: int) -> ReplayOutlook:
    with guard():
        return client().replay_outlook(run_id, step)


@st.cache_data(ttl=5, max_entries=64, show_spinner=False)
def _explained(run_id: int, step: int) -> list[Run]:
    """The replays of this step, the newest first."""
    with guard():
        replays = client().runs(kind="replay", limit=_LISTED).items
    return [one for one in replays if (one.config.get("run"), one.config.get("step")) == (run_id, step)]
