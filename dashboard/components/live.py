"""When a page that shows a live run has to be drawn again: when the run has moved, and not before.

With many who watch, pages are drawn a few at a time and each follows less often: fifty that are drawn together would all be finished
only when the last one is, and the run would have moved again.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import BoundedSemaphore, Lock, local
from time import monotonic
from typing import NamedTuple, NoReturn

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from backend.contract.protocol import EVALUATION
from backend.contract.records import TERMINAL, Run
from dashboard.components.address import browser_knows
from dashboard.session import guard, run_now

TICK = 1.0  # seconds between two looks at a run that moves,
MANY = 25  # for this many people; twice as long for twice as many
EACH = 0.1  # seconds for which one page more makes all the others follow later; drawing one takes a third of that
LOOK = 0.2  # seconds between two looks for a click while others draw
GONE = 10.0  # seconds without a look after which a page is no longer counted
_DRAWN = "live-drawn"

_looked: dict[str, float] = {}  # by session: when it last looked at a run that moves
_lock = Lock()
_places = BoundedSemaphore(3)  # one draws, and others wait for the backend meanwhile
_drawing = local()


class Moment(NamedTuple):
    """What of a run has to change before a page is drawn anew. Progress inside a step is the header's alone."""

    status: str
    attempt: int
    step: int
    evaluated: tuple[float | None, ...]  # an evaluation follows its step in a report of its own


def moment(run: Run) -> Moment:
    """Where the run stands."""
    evaluated = tuple(value for name, value in run.summary.items() if name.startswith(EVALUATION))
    return Moment(run.status, run.attempt, run.progress.step, evaluated)


def tick_of_whole_page() -> float:
    """Seconds between two looks of a page that is being drawn whole."""
    st.session_state[_DRAWN] = monotonic()
    return TICK * max(1.0, _people() / MANY)


def its_turn() -> bool:
    """Whether this person's page may follow the run now: ten pages follow every second, fifty every five seconds."""
    drawn: float = st.session_state.get(_DRAWN, 0.0)
    return monotonic() - drawn >= EACH * _people()


def _people() -> int:
    """How many look at runs that move, with the one who does now."""
    context, now = get_script_run_ctx(), monotonic()
    with _lock:
        _looked[context.session_id if context else ""] = now
        for session in [session for session, when in _looked.items() if now - when > GONE]:
            del _looked[session]
        return len(_looked)


@contextmanager
def in_turn() -> Iterator[None]:
    """Draw when it is this thread's turn; a part of a page that is being drawn does not wait again."""
    if getattr(_drawing, "now", False):
        yield
        return
    while not _places.acquire(timeout=LOOK):
        st.session_state.get(_DRAWN)  # a click that has come meanwhile goes first
    _drawing.now = True
    try:
        yield
    finally:
        _drawing.now = False
        _places.release()


def draw_again() -> NoReturn:
    """Draw the whole page again. A click on a link that has come meanwhile goes first: after `st.rerun` it would lead to this page."""
    st.empty()
    st.rerun()


def follow(runs: Sequence[Run]) -> None:
    """Draw the page again whenever one of the runs has moved."""
    tick = tick_of_whole_page()
    live = {run.id: moment(run) for run in runs if run.status not in TERMINAL}

    def look() -> None:
        with guard():
            moved = any(moment(run_now(run_id)) != drawn for run_id, drawn in live.items())
        if its_turn() and moved and browser_knows():
            draw_again()

    if live:
        st.fragment(look, run_every=tick)()
