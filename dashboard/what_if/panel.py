"""The what-if on a page: of one group and its step, or of a step alone. Of the whole step it shows the distribution of advantages,
dead groups, and completions whose sign changes."""

from collections.abc import Sequence

import streamlit as st

from backend.contract.groups import Group
from backend.contract.records import Run
from dashboard.algorithm.recomputation import Recomputed, StepArrays, arrays_of, difference, read_own, recompute
from dashboard.components.chart import heading, show
from dashboard.components.style import FIGURES
from dashboard.components.table import Column, draw
from dashboard.format import counted, number, signed
from dashboard.session import client, guard, url
from dashboard.text import one_line
from dashboard.what_if.changes import Flip, pushed, sign_flips, tally
from dashboard.what_if.controls import OPEN, changes_in_address, draw_controls
from dashboard.what_if.figures import distribution_figure
from dashboard.what_if.group_part import draw_group, draw_tokens
from dashboard.what_if.words import agreement, kl_in_loss, kl_in_words, kl_per_token, notes

_TITLE = "What if: another estimator, other reward weights, another clip range or β"
DEAD = (
    "Groups in which all rewards are equal, of those with two scored completions or more. An estimator that does not compare a "
    "group with its own mean (softmax, batch baseline, none) pushes all completions of such a group equally."
)
_STYLE = f'<style>.st-key-what-if-{FIGURES} [data-testid="stMetricValue"] {{ font-size: 1.35rem; }}</style>'
_ROWS = 8  # of the list that are in sight
_FLIPS: Sequence[Column[Flip]] = (
    Column("group", lambda flip: flip.group.index + 1, 55, kind="number"),
    Column("#", lambda flip: flip.completion.index + 1, 40, "The completion's number in its group.", "number"),
    Column("prompt", lambda flip: one_line(flip.group.prompt), 130),
    Column("reward", lambda flip: number(flip.reward), 60, kind="figure"),
    Column("stored", lambda flip: signed(flip.before), 60, kind="figure"),
    Column("what if", lambda flip: signed(flip.after), 60, kind="figure"),
    Column("change", lambda flip: pushed(flip.before, flip.after), 165),
)


def draw_what_if(run: Run, group: Group) -> None:
    """A folded part of the group's page; what a person changes in it draws it alone."""
    st.fragment(_draw)(run, group.step, group)


def draw_what_if_step(run: Run, step: int) -> None:
    """The same for all groups of a step. Not beside `draw_what_if`, which has it below the group."""
    st.fragment(_draw)(run, step, None)


_NEWER = "This version cannot read how the run turned rewards into advantages."
_RECORDED = (
    "How this run's trainer turns rewards into advantages was not recorded, or has no counterpart here, so nothing "
    "can be computed anew. A script of your own says it by `start_run(known=…)`."
)


@st.cache_resource(ttl=60, max_entries=16, show_spinner=False)
def load_step(run_id: int, step: int, attempt: int) -> StepArrays | None:  # noqa: ARG001 — a part of the cache's key
    """The step's numbers as of the run's attempt; None where no group was trained on. Raises what the client raises."""
    return arrays_of(client().step_scores(run_id, step).groups)


def _draw(run: Run, step: int, group: Group | None) -> None:
    folded = st.expander(_TITLE, icon=":material/science:", key=OPEN, bind="query-params")
    if not folded.open:
        return
    with folded:
        with guard():
            arrays = load_step(run.id, step, run.attempt)
        own = read_own(run.config)
        place = None if arrays is None or group is None else arrays.place_of(group.id)
        if own is None:
            st.info(_RECORDED if run.recorded else _NEWER, icon=":material/help:")
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
            if own.surrogate_known:
                draw_tokens(own, chosen, arrays, recomputed, place)
            else:
                st.caption(
                    "How advantages become a loss was not recorded, or has no counterpart here: no token's pull is computed."
                )
        st.markdown(kl_in_words(own, chosen, kl_in_loss(arrays, own), kl_per_token(arrays)))
        draw_step(arrays, recomputed, step)


def draw_step(step: StepArrays, after: Recomputed, number_of_step: int) -> None:
    """Counts, the distribution, and the list."""
    flips = list(sign_flips(step, after))
    trained_on = f"{counted(len(step.groups), 'group')} that were trained on"
    st.markdown(heading(f"All of step {number_of_step}", trained_on))
    _draw_counts(step, after, len(flips))
    picture, listed = st.columns([1, 1.3], gap="medium")
    with picture, st.container(key="what-if-distribution"):
        show(
            distribution_figure(step.advantages_P_G, after.advantages_P_G),
            key="what-if-distribution-chart",
            about="How many completions of the step have which advantage, stored and what if",
        )
        st.caption("Outline: stored. Filled: what if. A grey bar, if there is one, holds advantages near 0.")
    with listed, st.container(key="what-if-flips"):
        if flips:
            settings = {OPEN: "true", **changes_in_address()}
            opened = Column[Flip]("open", lambda flip: url("group", id=flip.group.id, **settings), 55, kind="link")
            height = min(35 * (len(flips) + 1) + 3, 35 * (_ROWS + 1) + 3)
            draw(flips, [*_FLIPS, opened], key="what-if-flips-table", height=height)
        else:
            st.caption("No completion changes its sign: each is still pushed the same way, or still left alone.")


def _draw_counts(step: StepArrays, after: Recomputed, flips: int) -> None:
    before = tally(step, step.advantages_P_G, [group.state for group in step.groups])
    now = tally(step, after.advantages_P_G, after.states)
    with st.container(key=f"what-if-{FIGURES}"):
        st.html(_STYLE)
        cells = st.columns(5)
        for cell, label, new, old, about in zip(
            cells,
            ("Dead groups", "Reinforced", "Discouraged", "With advantage 0"),
            (now.dead_in_words, *map(str, now[:3])),
            (before.dead_in_words, *map(str, before[:3])),
            (DEAD, None, None, None),
            strict=False,
        ):
            cell.metric(label, new, f"was {old}", delta_color="off", delta_arrow="off", help=about)
        of_all = f"of {counted(sum(now[:3]), 'completion')}"
        cells[4].metric("Sign changes", str(flips), of_all, delta_color="off", delta_arrow="off")
