"""Where a group stands, and the way to its neighbours: in its step, and in the steps before and after."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

import streamlit as st

from backend.contract.groups import Group
from backend.contract.records import TERMINAL, Run
from dashboard.algorithm.estimators import stored_estimator
from dashboard.components.address import GROUPS, OVERVIEW, number_in_address, write
from dashboard.components.keys import listen
from dashboard.components.known_steps import known_steps
from dashboard.components.live import TICK
from dashboard.session import client, guard, link
from dashboard.status import GROUP
from dashboard.text import one_line

OPENED = "tokens"  # in the address: the number of the completion that is opened
_ASKED = "step-asked-for"
KEYS = {
    "ArrowLeft": "completion-back",
    "ArrowRight": "completion-forth",
    "ArrowUp": "group-back",
    "ArrowDown": "group-forth",
    "[": "step-back",
    "]": "step-forth",
}


def draw_path(run: Run, group: Group, order: list[int]) -> None:
    """The run, the step, the place in it, and a pair of buttons for each way to move; `order` is the cards', by index."""
    siblings = step_groups(run.id, run.attempt, group.step)
    place = siblings.index(group.id) if group.id in siblings else None
    of = (
        f"of {len(siblings)}"
        if place is not None
        else ":gray[· superseded: a later attempt resumed from before this step]"
    )
    with st.container(horizontal=True, vertical_alignment="center", key="path"):
        link("run", f"Run #{run.id}", id=run.id, tab=OVERVIEW.lower())
        st.text(one_line(run.name), width="content")
        link("run", f"Step {group.step}", id=run.id, tab=GROUPS.lower(), step=group.step)
        st.markdown(f"**Group {group.index + 1}** {of}", width="content")
        st.markdown(_state(run, group), width="stretch")
        _draw_completion_keys(order)
        _draw_group_keys(siblings, place)
        _draw_step_keys(run, group)
    listen(KEYS)


def _state(run: Run, group: Group) -> str:
    if group.state == "zero_variance" and not stored_estimator(run.config).centred:
        return ":gray[:material/drag_handle: equal rewards]"
    return GROUP[group.state].markdown


def _draw_completion_keys(order: list[int]) -> None:
    opened = opened_completion()
    place = order.index(opened) if opened in order else None
    before, after = (len(order) - 1, 0) if place is None else (place - 1, place + 1)
    _draw_pair(
        "completion",
        _Way("Previous completion", ":material/chevron_left:", "←", _at(order, before)),
        _Way("Next completion", ":material/chevron_right:", "→", _at(order, after)),
        open_completion,
    )


def _draw_group_keys(siblings: list[int], place: int | None) -> None:
    before, after = (None, None) if place is None else (_at(siblings, place - 1), _at(siblings, place + 1))
    _draw_pair(
        "group",
        _Way("Previous group", ":material/keyboard_arrow_up:", "↑", before),
        _Way("Next group", ":material/keyboard_arrow_down:", "↓", after),
        _open_group,
    )


def _draw_step_keys(run: Run, group: Group) -> None:
    """While the run goes on these look for its newest step, and only these are drawn again."""
    live = run.status not in TERMINAL
    with st.container(width="content", key="step-keys"):
        st.fragment(_step_keys, run_every=TICK if live else None)(run, group.step)


def _step_keys(run: Run, step: int) -> None:
    if _ASKED in st.session_state:  # a press of a button in here draws only this; the page is what has to change
        st.rerun()
    steps = [summary.step for summary in known_steps(run)]
    place = bisect_left(steps, step)
    after = place + 1 if _at(steps, place) == step else place
    _draw_pair(
        "step",
        _Way("The same place a step before", ":material/keyboard_double_arrow_left:", "[", _at(steps, place - 1)),
        _Way("The same place a step later", ":material/keyboard_double_arrow_right:", "]", _at(steps, after)),
        _ask_for_step,
    )


class _Way(NamedTuple):
    """A button that leads to a neighbour, or to none."""

    label: str
    icon: str
    key: str  # of the keyboard
    to: int | None


def _draw_pair(name: str, back: _Way, forth: _Way, move: Callable[[int], None]) -> None:
    """What the two move, and the two buttons."""
    with st.container(
        horizontal=True, vertical_alignment="center", gap="xsmall", width="content", key=f"actions-{name}"
    ):
        st.caption(name, width="content")
        for way, direction in ((back, "back"), (forth, "forth")):
            st.button(
                way.label,
                icon=way.icon,
                key=f"{name}-{direction}",
                help=f"{way.label} ({way.key})",
                disabled=way.to is None,
                on_click=move,
                args=(way.to,),
            )


def _at(places: Sequence[int], place: int) -> int | None:
    return places[place] if 0 <= place < len(places) else None


def opened_completion() -> int | None:
    """The index of the completion that the address opens; people count from 1."""
    number = number_in_address(OPENED)
    return None if number is None else number - 1


def open_completion(index: int | None) -> None:
    """Open the completion; None closes the one that is open."""
    write(**{OPENED: None if index is None else index + 1})


def _open_group(group_id: int) -> None:
    write(id=group_id)


def _ask_for_step(step: int) -> None:
    st.session_state[_ASKED] = step


def follow_to_step(run: Run, group: Group) -> int:
    """The id of the group to show: this one, or the one at its place in the step that somebody just asked for."""
    step = st.session_state.pop(_ASKED, None)
    if step is None:
        return group.id
    here, there = (step_groups(run.id, run.attempt, one) for one in (group.step, step))
    place = here.index(group.id) if group.id in here else 0
    found = there[min(place, len(there) - 1)] if there else group.id
    _open_group(found)
    return found


@st.cache_data(ttl=60, max_entries=32, show_spinner=False)
def step_groups(run_id: int, attempt: int, step: int) -> list[int]:  # noqa: ARG001 — a part of the cache's key
    """The ids of the step's groups as of the run's attempt, in their order."""
    ids: list[int] = []
    cursor: str | None = None
    while True:
        with guard():
            page = client().groups(run_id, step=step, sort="index", limit=200, cursor=cursor)
        ids += [group.id for group in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return ids
