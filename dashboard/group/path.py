"""Where a group stands, and the way to its neighbours: in its step, and in the steps before and after."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

import streamlit as st

from backend.contract.groups import Group, GroupState
from backend.contract.records import TERMINAL, Run
from dashboard.algorithm.estimators import stored_estimator
from dashboard.components.address import GROUPS, OVERVIEW, number_in_address, write
from dashboard.components.keys import listen
from dashboard.components.known_steps import known_steps
from dashboard.components.live import TICK
from dashboard.session import client, link, pages_of
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
# what is moved through -> words and icon of the button back and of the button on, with the key of each
_WAYS = {
    "completion": (
        ("Previous completion", ":material/chevron_left:", "←"),
        ("Next completion", ":material/chevron_right:", "→"),
    ),
    "group": (
        ("Previous group", ":material/keyboard_arrow_up:", "↑"),
        ("Next group", ":material/keyboard_arrow_down:", "↓"),
    ),
    "step": (
        ("The group with the same number, one step earlier", ":material/keyboard_double_arrow_left:", "["),
        ("The group with the same number, one step later", ":material/keyboard_double_arrow_right:", "]"),
    ),
}


def draw_path(run: Run, group: Group, order: list[int]) -> None:
    """The run, the step, the place in it, and a pair of buttons for each way to move; `order` is the cards', by index.

    While the run goes on the buttons through its steps look for the newest one, and only these are drawn again.
    """
    states = step_groups(run.id, run.attempt, group.step)
    siblings = list(states)
    place = siblings.index(group.id) if group.id in siblings else None
    alike = [id for id, state in states.items() if (state == "probe") == (group.state == "probe")]
    kind = "Probe" if group.state == "probe" else "Group"
    where = f"**{kind} {group.index + 1}** :gray[· superseded: a later attempt resumed from before this step]"
    if group.id in alike:
        where = f"**{kind} {alike.index(group.id) + 1}** of {len(alike)}"
    state = GROUP[group.state].markdown
    if group.state == "zero_variance" and not stored_estimator(run.config).centred:
        state = ":gray[:material/drag_handle: equal rewards]"
    opened = opened_completion()
    turn = order.index(opened) if opened in order else None
    with st.container(horizontal=True, vertical_alignment="center", key="path"):
        link("run", f"Run #{run.id}", id=run.id, tab=OVERVIEW.lower())
        st.text(one_line(run.name), width="content")
        link("run", f"Step {group.step}", id=run.id, tab=GROUPS.lower(), step=group.step)
        st.markdown(where, width="content")
        st.markdown(state, width="stretch")
        before, after = (len(order) - 1, 0) if turn is None else (turn - 1, turn + 1)
        _draw_pair("completion", _at(order, before), _at(order, after), open_completion)
        before, after = (-1, -1) if place is None else (place - 1, place + 1)
        _draw_pair("group", _at(siblings, before), _at(siblings, after), _open_group)
        with st.container(width="content", key="step-keys"):
            st.fragment(_step_keys, run_every=None if run.status in TERMINAL else TICK)(run, group.step)
    listen(KEYS)


def _step_keys(run: Run, step: int) -> None:
    if _ASKED in st.session_state:  # a press of a button in here draws only this; the page is what has to change
        st.rerun()
    steps = [summary.step for summary in known_steps(run)]
    place = bisect_left(steps, step)
    after = place + 1 if _at(steps, place) == step else place
    _draw_pair("step", _at(steps, place - 1), _at(steps, after), lambda to: st.session_state.update({_ASKED: to}))


def _draw_pair(name: str, back: int | None, forth: int | None, move: Callable[[int], None]) -> None:
    """What the two buttons move, and they themselves; each leads to a neighbour, or to none."""
    with st.container(
        horizontal=True, vertical_alignment="center", gap="xsmall", width="content", key=f"actions-{name}"
    ):
        st.caption(name, width="content")
        for direction, to, (label, icon, key) in zip(("back", "forth"), (back, forth), _WAYS[name], strict=True):
            st.button(
                label,
                icon=icon,
                key=f"{name}-{direction}",
                help=f"{label} ({key})",
                disabled=to is None,
                on_click=move,
                args=(to,),
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


def follow_to_step(run: Run, group: Group) -> int:
    """The id of the group to show: this one, or the one at its place in the step that somebody just asked for."""
    step = st.session_state.pop(_ASKED, None)
    if step is None:
        return group.id
    here, there = (list(step_groups(run.id, run.attempt, one)) for one in (group.step, step))
    place = here.index(group.id) if group.id in here else 0
    found = there[min(place, len(there) - 1)] if there else group.id
    _open_group(found)
    return found


@st.cache_data(ttl=60, max_entries=32, show_spinner=False)
def step_groups(run_id: int, attempt: int, step: int) -> dict[int, GroupState]:  # noqa: ARG001 — a part of the cache's key
    """The ids of the step's groups as of the run's attempt, in their order, each with its state."""
    pages = pages_of(lambda cursor: client().groups(run_id, step=step, sort="index", limit=200, cursor=cursor))
    return {group.id: group.state for page in pages for group in page.items}
