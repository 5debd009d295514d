"""What people ask of a run, and the states that allow it: the backend guards with this table, the pages offer from it."""

from collections.abc import Mapping
from dataclasses import dataclass

from backend.contract.config import RECORDED
from backend.contract.records import STOPS, Requested, Run, Status


@dataclass(frozen=True)
class Transition:
    """From a status, unless one of some requests stands, to a status and a request."""

    status: Status
    to: Status
    requested: Requested = "nothing"
    unless_requested: frozenset[str] = frozenset()


COMMANDS: Mapping[str, tuple[Transition, ...]] = {
    "pause": (Transition("queued", "paused"), Transition("running", "running", "pause", unless_requested=STOPS)),
    "resume": (Transition("paused", "queued"), Transition("running", "running", unless_requested=STOPS | {"nothing"})),
    "stop": (
        Transition("queued", "stopped"),
        Transition("paused", "stopped"),
        Transition("running", "running", "stop", unless_requested=STOPS),
        Transition("running", "running", "stop_at_once"),
    ),
    "retry": (Transition("failed", "queued"), Transition("stopped", "queued")),
}
"""By command, the transitions that are tried in their order: a second stop does not wait for the step."""


def possible(run: Run) -> dict[str, Transition]:
    """The commands that would change the run, in the order of the table, each with what it would do."""
    found: dict[str, Transition] = {}
    verbs = ("stop",) if run.kind == RECORDED else COMMANDS
    for verb, transitions in ((verb, COMMANDS[verb]) for verb in verbs):
        for one in transitions:
            if run.status == one.status and run.requested not in one.unless_requested:
                if (one.to, one.requested) != (run.status, run.requested):
                    found[verb] = one
                break
    return found
