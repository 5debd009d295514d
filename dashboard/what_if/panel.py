"""The what-if on a page: of one group and its step, or of a step alone."""

import streamlit as st

from backend.contract.groups import Group
from backend.contract.records import Run
from dashboard.algorithm.recomputation import StepArrays, arrays_of, difference, read_own, recompute
from dashboard.session import client, guard
from dashboard.what_if.controls import OPEN, draw_controls
from dashboard.what_if.group_part import draw_group, draw_tokens
from dashboard.what_if.step_part import draw_step
from dashboard.what_if.words import agreement, kl_in_loss, kl_in_words, kl_per_token, notes

_TITLE = "What if: another estimator, other weights, another clip range or β"


def draw_what_if(run: Run, group: Group) -> None:
    """A folded part of the group's page; what a person changes in it draws it alone."""
    st.fragment(_draw)(run, group.step, group)


def draw_what_if_step(run: Run, step: int) -> None:
    """The same for all groups of a step. Not beside `draw_what_if`, which has it below the group."""
    st.fragment(_draw)(run, step, None)


@st.cache_resource(ttl=60, max_entries=16, show_spinner=False)
def load_step(run_id: int, step: int, attempt: int) -> StepArrays | None:  # noqa: ARG001 — a part of the cache's key
    """The step's numbers as of the run's attempt; None where no group was trained on. Raises what the client raises."""
    return arrays_of(client().step_scores(run_id, step).groups)


def _draw(run: Run, step: int, group: Group | None) -> None:
    folded = st.expander(_TITLE, icon=":material/science:", key=OPEN, bind="query-params")
    if folded.open:
        with folded:
            _draw_content(run, step, group)


def _draw_content(run: Run, step: int, group: Group | None) -> None:
    with guard():
        arrays = load_step(run.id, step, run.attempt)
    own = read_own(run.config)
    place = None if arrays is None or group is None else arrays.place_of(group.id)
    if own is None:
        st.info("This version cannot read how the run turned rewards into advantages.", icon=":material/help:")
        return
    if arrays is None or (group is not None and place is None):
        st.info(
            "Nothing was trained on this group: it was replaced, is a probe, or belongs to an attempt that was superseded.",
            icon=":material/block:",
        )
        return
    chosen = draw_controls(own)
    recomputed = recompute(arrays, own, chosen)
    st.markdown(agreement(own, chosen, difference(arrays, recomputed)))
    for note in notes(own, chosen):
        st.caption(note)
    if group is not None and place is not None:
        draw_group(arrays, recomputed, place)
        draw_tokens(own, chosen, arrays, recomputed, place)
    st.markdown(kl_in_words(own, chosen, kl_in_loss(arrays, own), kl_per_token(arrays)))
    draw_step(arrays, recomputed, step)
