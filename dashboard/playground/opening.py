"""What the Playground opens with: a textbook example, or a logged group with the settings of its run; and the choice of such a group."""

from dataclasses import dataclass, field

import streamlit as st

from backend.contract.advantage import Advantage
from backend.contract.algorithm import Algorithm, Kl
from backend.contract.groups import Group
from backend.contract.records import Run
from backend.contract.surrogate import Surrogate
from dashboard.algorithm.controls import FROM_REWARDS, KL
from dashboard.algorithm.estimators import ADVANTAGE
from dashboard.algorithm.surrogates import stored_surrogate
from dashboard.components.address import write_only
from dashboard.format import number
from dashboard.playground.rewards import written
from dashboard.session import client, guard
from dashboard.stored import part
from dashboard.text import one_line

MOST_GROUPS = 200  # of the step, which the estimators over the batch look at
LISTED = 200  # runs, or groups of a step, to choose from
_SECOND = "1, 1, 1, 0, 1, 1, 0, 0"


@dataclass(frozen=True)
class Opening:
    """The values of the controls where the address says nothing else. Rewards are written as a person would type them."""

    prompt: str = "Calculate 2 + 2 x 6"
    rewards: str = "1, 1, 1, 1, 0, 0, 0, 0"
    further: str = _SECOND  # the values of further reward functions
    weights: str = "0.9, 0.1"
    batch: str = "1, 0, 0, 0, 0, 0, 0, 0"  # the other groups of the batch
    advantage: Advantage = field(default_factory=lambda: Algorithm().advantage)
    surrogate: Surrogate = field(default_factory=lambda: Algorithm().surrogate)
    kl: Kl = field(default_factory=Kl)
    group: Group | None = None
    run: Run | None = None


@st.cache_data(ttl=600, max_entries=32, show_spinner=False)
def load(group_id: int) -> Opening:
    """A logged group as the controls hold it, with the settings that its run was stored with. Raises what the client raises."""
    group = client().group(group_id)
    run = client().run(group.run_id)
    groups = client().groups(run.id, step=group.step, sort="index", limit=MOST_GROUPS).items
    siblings = [other.rewards for other in groups if other.id != group.id and other.state != "filtered"]
    weights = (
        [1.0 if score.weight is None else score.weight for score in group.completions[0].rewards]
        if group.completions
        else []
    )
    raw = [
        [one.rewards[place].raw if place < len(one.rewards) else None for one in group.completions]
        for place in range(len(weights))
    ]
    usual = Algorithm().advantage
    stored = part(ADVANTAGE, run.config, "algorithm.advantage", usual)
    advantage = stored if stored.kind in FROM_REWARDS else usual
    summed = advantage.reads == "components"
    return Opening(
        prompt=group.prompt or group.prompt_text,
        rewards=written(raw[0] if summed and raw else [completion.reward for completion in group.completions]),
        further="; ".join(written(row) for row in raw[1:]) if summed else _SECOND,
        weights=written(weights) if summed else "0.9, 0.1",
        batch="; ".join(written(rewards) for rewards in siblings),
        advantage=advantage,
        surrogate=stored_surrogate(run.config) or Algorithm().surrogate,
        kl=part(KL, run.config, "algorithm.kl", Kl()),
        group=group,
        run=run,
    )


@st.dialog("Load a real group")
def choose_group() -> None:
    """The newest runs first; opening a group replaces what the page shows."""
    with guard():
        runs = {
            run.id: f"{one_line(run.name)} #{run.id}"
            for run in client().runs(kind="training", limit=LISTED).items
            if run.by_groups and run.progress.step > 0  # runs on pairs have no groups at all
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
            for group in client().groups(run_id, step=step, sort="-reward_std", limit=LISTED).items
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
