"""What people ask of a run: pause, resume, stop, retry. Each is one guarded statement; a refusal says why."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, update

from backend import events
from backend.checkpoints import store as checkpoints
from backend.contract.commands import COMMANDS
from backend.contract.config import RECORDED
from backend.errors import Conflict, Invalid, NotFound
from backend.runs import store
from backend.storage.tables import run
from backend.uploads import store as uploads

AFRESH = {"failures": 0, "error": None, "finished_at": None}
ADVICE = {
    "pause": "only a queued or running run can be paused",
    "resume": "only a paused run, or one that is about to pause, can be resumed",
    "stop": "only a queued, running or paused run can be stopped",
    "retry": "only a failed or stopped run can be retried; clone it to run it anew",
}


def command(tx: Connection, run_id: int, verb: str, at: datetime) -> None:
    """Apply a command. Raises NotFound, and Conflict where the run's state, or a checkpoint or an upload that is gone, does not allow it."""
    if verb != "stop" and store.row_of(tx, run_id)["kind"] == RECORDED:
        raise Conflict(f"Run {run_id} is trained by a program of its own, and only recorded here: use that program.")
    for transition in COMMANDS[verb]:
        values: dict[str, Any] = {"status": transition.to, "requested": transition.requested}
        if transition.to == "stopped":
            values["finished_at"] = at
        if verb == "retry":
            values |= AFRESH
        changed = tx.execute(
            update(run)
            .where(run.c.id == run_id, run.c.status == transition.status)
            .where(run.c.requested.not_in(transition.unless_requested))
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
        checkpoints.store_of(tx, row["config"])
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
