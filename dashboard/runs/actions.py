"""What a row offers: a tick, and each action as one icon; those that cannot be undone ask once more, in the row itself.

A tick outlives the ticks of the list, and a page of filters; it goes with its run.
"""

from dataclasses import dataclass

import streamlit as st

from backend.contract.commands import possible
from backend.contract.records import TERMINAL, Run, RunUpdate
from dashboard.session import carried_out, client, guard, link
from dashboard.status import AGAIN

_ASKING = "asking"  # (run, verb) that waits for a yes
_HIGHEST = 1000
_PICK = "pick-"  # and a run's number: whether it is ticked


@dataclass(frozen=True)
class Action:
    """A word, its icon, and what it does; `question` is asked before it is done."""

    verb: str
    word: str
    icon: str
    help: str
    question: str | None = None


PAUSE = Action(
    "pause", "Pause", ":material/pause:", "Pause at the next step boundary; the worker is free for the next run"
)
RESUME = Action("resume", "Resume", ":material/play_arrow:", "Go on: the run waits in the queue again")
STOP = Action("stop", "Stop", ":material/stop:", "Stop at the next step boundary; what was trained stays", "Stop it?")
CANCEL = Action("stop", "Cancel", ":material/close:", "Take it out of the queue", "Cancel it?")
_COMMANDS = {one.verb: one for one in (PAUSE, RESUME, STOP)}
FIRST = Action("first", "To the front", ":material/arrow_upward:", "Move it to the front of the queue")
DELETE = Action(
    "delete",
    "Delete",
    ":material/delete:",
    "Delete it with all its groups, metrics and checkpoints, for ever",
    "Delete it?",
)


def offers(run: Run) -> tuple[Action, ...]:
    """What a row offers; a stop that does not wait for the step is on the run's page alone."""
    if run.status == "queued":
        return (FIRST, CANCEL) if (run.queue_position or 1) > 1 else (CANCEL,)
    if run.status in AGAIN and not run.recorded:
        again = Action("retry", *AGAIN[run.status], "Queue it again; it goes on from its last checkpoint")
        return again, DELETE
    if run.status in TERMINAL:
        return (DELETE,)
    return tuple(_COMMANDS[verb] for verb, change in possible(run).items() if change.requested != "stop_at_once")


def show_actions(run: Run) -> None:
    """The icons, or the question that one of them asks. The style sheet shows the icons alone; their words are for readers."""
    actions = offers(run)
    asked = next((one for one in actions if (run.id, one.verb) == st.session_state.get(_ASKING)), None)
    key = f"question-{run.id}" if asked else f"actions-{run.id}"
    with st.container(
        horizontal=True,
        horizontal_alignment="right",
        gap="xsmall",
        vertical_alignment="center",
        wrap=asked is None,
        key=key,
    ):
        if asked is not None:
            forks = _forks(run) if asked == DELETE else []
            which = f"{', '.join(f'#{one}' for one in forks)} forked from it: delete it, and keep the steps that {'they need' if len(forks) > 1 else 'it needs'}?"
            st.markdown(f":red[{which if forks else asked.question}]", width="content")
            key = f"{asked.verb}-{run.id}-yes"
            st.button("Yes", key=key, help=asked.help, type="tertiary", on_click=_act, args=(run, asked.verb))
            st.button("No", key=f"{asked.verb}-{run.id}-no", type="tertiary", on_click=_ask, args=(None,))
            return
        for action in actions:
            asks = action.question is not None
            st.button(
                action.word,
                key=f"{action.verb}-{run.id}",
                icon=action.icon,
                help=action.help,
                type="tertiary",
                on_click=_ask if asks else _act,
                args=((run.id, action.verb),) if asks else (run, action.verb),
            )
        if not run.from_form:
            return
        link(
            "new-run",
            "Clone",
            icon=":material/content_copy:",
            help="Clone: opens its configuration in the form",
            clone=run.id,
        )


def _forks(run: Run) -> list[int]:
    """The runs that need steps of this one."""
    with guard():
        return [one.id for one in client().runs(forked_from=run.id, limit=5).items]


def _ask(what: tuple[int, str] | None) -> None:
    st.session_state[_ASKING] = what


def _act(run: Run, verb: str) -> None:
    _ask(None)

    def act() -> None:
        if verb == DELETE.verb:
            client().delete_run(run.id, keep_trunk=bool(_forks(run)))
        elif verb == FIRST.verb:
            waiting = client().runs(kind="training", status="queued", limit=200).items
            above_all = min(_HIGHEST, max(one.priority for one in waiting) + 1) if waiting else 0
            client().update_run(run.id, RunUpdate(priority=above_all))
        else:
            client().command(run.id, verb)

    if carried_out(act) and verb == DELETE.verb:
        st.session_state.pop(f"{_PICK}{run.id}", None)  # a deleted run is not compared


def show_tick(run_id: int) -> None:
    """The box of a run."""
    st.checkbox(f"Select run {run_id}", key=f"{_PICK}{run_id}", label_visibility="collapsed", persist_state="page")


def picked() -> list[int]:
    """The runs whose box is ticked, oldest first."""
    keys = [str(key) for key, ticked in st.session_state.items() if str(key).startswith(_PICK) and ticked is True]
    return sorted(int(key.removeprefix(_PICK)) for key in keys)
