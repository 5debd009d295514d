"""What people ask of a run: pause, resume, stop, retry. Each is one guarded statement; a refusal says why."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, update

from backend.checkpoints import named
from backend.contract.records import STOPS
from backend.errors import Conflict, Invalid, NotFound
from backend.runs import store
from backend.storage.tables import run
from backend.telemetry import events
from backend.uploads import store as uploads


@dataclass(frozen=True)
class Transition:
    """From a status (and perhaps what was asked before) to new values."""

    status: str
    values: Mapping[str, Any]
    unless_requested: tuple[str, ...] = ()

    def guard(self) -> ColumnElement[bool]:
        """Where it applies."""
        return (run.c.status == self.status) & run.c.requested.not_in(self.unless_requested)


STOPPED = {"status": "stopped", "requested": "nothing"}
AFRESH = {"status": "queued", "requested": "nothing", "failures": 0, "error": None, "finished_at": None}

COMMANDS: dict[str, tuple[Transition, ...]] = {
    "pause": (
        Transition("queued", {"status": "paused"}),
        Transition("running", {"requested": "pause"}, unless_requested=tuple(STOPS)),
    ),
    "resume": (
        Transition("paused", {"status": "queued"}),
        Transition("running", {"requested": "nothing"}, unless_requested=("nothing", *STOPS)),
    ),
    "stop": (
        Transition("queued", STOPPED),
        Transition("paused", STOPPED),
        Transition("running", {"requested": "stop"}, unless_requested=tuple(STOPS)),
        Transition("running", {"requested": "stop_at_once"}),
    ),
    "retry": (Transition("failed", AFRESH), Transition("stopped", AFRESH)),
}
ADVICE = {
    "pause": "only a queued or running run can be paused",
    "resume": "only a paused run, or one that is about to pause, can be resumed",
    "stop": "only a queued, running or paused run can be stopped",
    "retry": "only a failed or stopped run can be retried; clone it to run it anew",
}


def command(tx: Connection, run_id: int, verb: str, at: datetime) -> None:
    """Apply a command. Raises NotFound, and Conflict where the run's state, or a checkpoint or an upload that is gone, does not allow it."""
    for transition in COMMANDS[verb]:
        values = dict(transition.values)
        if values.get("status") == "stopped":
            values["finished_at"] = at
        changed = tx.execute(
            update(run)
            .where(run.c.id == run_id, transition.guard())
            .values(values)
            .returning(run.c.status, run.c.requested)
        ).one_or_none()
        if changed is not None:
            if verb == "retry":
                _require_sources(tx, run_id)
            events.record(tx, run_id, "status", {"status": changed.status, "requested": changed.requested}, at)
            return
    row = store.row_of(tx, run_id)
    asked = f" and was asked to {row['requested'].replace('_', ' ')}" if row["requested"] != "nothing" else ""
    raise Conflict(f"Run {run_id} is {row['status']}{asked}: {ADVICE[verb]}.")


def _require_sources(tx: Connection, run_id: int) -> None:
    row = store.row_of(tx, run_id)
    missing: dict[str, str] = {}
    try:
        named.store_of(tx, row["config"])
    except Invalid as gone:
        missing = {error.field: error.message for error in gone.errors}
    try:
        if row["upload_id"] is not None:
            uploads.get(tx, row["upload_id"])
    except NotFound:
        missing["its data"] = f"upload {row['upload_id']} was deleted"
    if missing:
        what, why = " and ".join(missing), "; ".join(missing.values())
        raise Conflict(f"Run {run_id} cannot be retried; clone it and change {what}: {why}")
