"""How the rewards and advantages of each run were distributed over its steps, all on one scale."""

from typing import Literal

import streamlit as st

from backend.contract.inspection import Distribution
from backend.contract.records import TERMINAL, Run
from dashboard.charts.distribution import common_scale, distribution_figure
from dashboard.comparison.selection import label
from dashboard.components.address import shown_at_once
from dashboard.components.chart import show
from dashboard.components.listing import across, offer_more
from dashboard.format import plain
from dashboard.session import client, guard

Of = Literal["reward", "advantage"]
VALUES: dict[str, Of] = {"rewards": "reward", "advantages": "advantage"}
AT_ONCE, BESIDE = 6, 3  # runs; more on demand
STEPS, BINS = 48, 30
_RUNS = "distributions"  # in the address: how many runs are shown


def draw_distributions(runs: list[Run]) -> None:
    """Draw the choice between rewards and advantages, and a heat map for each run."""
    with_groups = [run for run in runs if run.by_groups and run.attempt]
    if not with_groups:
        st.caption("None of these runs has sampled a group yet.")
        return
    asked = st.segmented_control(
        "Distribution of", list(VALUES), default="rewards", required=True, key="of", bind="query-params"
    )
    shown = with_groups[: shown_at_once(_RUNS, AT_ONCE)]
    with guard():
        value = VALUES[str(asked)]
        found = [(_ask_once if run.status in TERMINAL else _ask)(run.id, run.attempt, value) for run in shown]
    scale = common_scale(found)
    for column, (run, one) in across(list(zip(shown, found, strict=True)), BESIDE):
        with column.container(border=True, key=f"distribution-{run.id}"):
            st.markdown(f"**{plain(label(run))}**")
            if not one.steps:
                st.caption("This run has not sampled a group yet.")
                continue
            show(distribution_figure(one, scale), key=f"{asked}-of-{run.id}", about=f"{asked} of {label(run)}")
    offer_more(len(with_groups) - len(shown), "run", _RUNS, AT_ONCE, key="more-distributions")
    st.caption(
        "Each vertical slice is the histogram of one step: the stronger the colour, the more of its completions lie there. All runs "
        "share one scale. A red row below, if there is one, counts completions without a value."
    )


def _ask(run_id: int, attempt: int, value: Of) -> Distribution:  # noqa: ARG001 — a part of the cache's key
    return client().distribution(run_id, value=value, steps=STEPS, bins=BINS)


# of an attempt that has ended
_ask_once = st.cache_data(ttl=600, max_entries=64, show_spinner=False)(_ask)
