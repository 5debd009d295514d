"""Brings a logged group into the Playground: a run, a step, a group."""

import streamlit as st

from dashboard.components.address import write_only
from dashboard.format import number
from dashboard.session import client, guard
from dashboard.text import one_line

_MOST = 200


@st.dialog("Load a real group")
def choose_group() -> None:
    """The newest runs first; opening a group replaces what the page shows."""
    with guard():
        runs = {
            run.id: f"{one_line(run.name)} #{run.id}"
            for run in client().runs(kind="training", limit=_MOST).items
            if run.kind in ("grpo", "sample") and run.progress.step > 0  # runs on pairs have no groups at all
        }
    run_id = st.selectbox("Run", list(runs), format_func=lambda each: runs[each], key="load-run")
    if run_id is None:
        st.caption("No run has recorded groups yet.")
        return
    with guard():
        steps = [summary.step for summary in client().steps(run_id)]
    step = st.selectbox("Step", steps[::-1], key=f"load-step-{run_id}") if steps else None
    if step is None:
        st.caption("This run has recorded no groups yet.")
        return
    with guard():
        groups = {
            group.id: f"{group.index + 1} · {one_line(group.prompt or group.prompt_text)[:60]} · "
            f"mean {number(group.reward_mean)}, std {number(group.reward_std)}"
            for group in client().groups(run_id, step=step, sort="-reward_std", limit=_MOST).items
        }
    group_id = st.selectbox(
        "Group, widest spread first",
        list(groups),
        format_func=lambda each: groups[each],
        key=f"load-group-{run_id}-{step}",
    )
    if st.button("Open", type="primary", icon=":material/science:", disabled=group_id is None):
        write_only(group=group_id)
        st.rerun()
