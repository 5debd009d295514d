"""An attempt's beginning and end: start, heartbeat, finish, fail."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, func, or_, select, update

from backend import events
from backend.clock import Terms
from backend.contract import protocol as p
from backend.contract.base import Json
from backend.contract.records import STOPS, TERMINAL
from backend.errors import Conflict, Invalid, LeaseLost
from backend.field_errors import FieldError
from backend.queue import lease
from backend.runs import reward_texts, store
from backend.storage import history
from backend.storage.tables import attempt, log_line, metric, run, worker
from backend.telemetry import stretches, summary

IDLE: dict[str, Any] = {
    "lease_until": None,
    "requested": "nothing",
    "eta_seconds": None,
    "phase": None,
    "phase_done": None,
    "phase_total": None,
    "phase_since": None,
}
ASKED = {
    "paused": "somebody paused the run",
    "stopped": "somebody stopped the run",
    "released": "its worker was asked to end, and gave the run back",
}
OUTCOMES = {"finished": "finished", "stopped": "stopped", "paused": "paused", "released": "queued"}


def start(tx: Connection, run_id: int, sent: p.Start, terms: Terms) -> bool:
    """Say where the attempt begins; whether it had said so before. Raises LeaseLost, and Conflict for another place."""
    row = lease.hold(tx, run_id, sent.attempt, terms)
    store.require_step(row, sent.from_step, done=True)
    own = history.segments(tx, run_id)[-1].first
    if sent.from_step < own:
        text = f"run {run_id} was forked at step {own} and begins no earlier (got {sent.from_step})"
        raise Invalid(FieldError("from_step", text))
    earlier = history.from_step(tx, run_id, sent.attempt)
    if earlier is not None and earlier != sent.from_step:
        raise Conflict(f"Attempt {sent.attempt} of run {run_id} already began at step {earlier}.")
    if earlier is not None:
        return True
    _note(tx, run_id, sent.attempt, from_step=sent.from_step, device=sent.device, versions=sent.versions)
    reward_texts.keep(tx, run_id, sent.attempt, sent.reward_texts)
    history.begin(tx, run_id, sent.attempt, sent.from_step)
    stretches.cut(tx, run_id, sent.from_step)
    commit = func.coalesce(run.c.model_commit, sent.model_commit)  # the first attempt's: later ones begin from the same
    values = {"step": sent.from_step, "device": sent.device, "model_commit": commit, "eta_seconds": None}
    values |= summary.recomputed(tx, run_id)
    tx.execute(update(run).where(run.c.id == run_id).values(values))
    return False


def heartbeat(tx: Connection, run_id: int, beat: p.Heartbeat, terms: Terms, at: datetime) -> p.HeartbeatReply:
    """Renew the lease, note the progress within the step, say what was asked for. Raises LeaseLost."""
    row = lease.hold(tx, run_id, beat.attempt, terms)
    if (progress := beat.progress) is not None:
        inside = progress.step == row["step"]  # between two steps a worker still tells of the one that is over
        same = progress.phase == row["phase"] and row["phase_since"] is not None
        since = row["phase_since"] if same else terms.now
        within = {"phase": progress.phase, "phase_done": progress.done, "phase_total": progress.total}
        tx.execute(update(run).where(run.c.id == run_id).values(**within, phase_since=since if inside else None))
    _note(tx, run_id, beat.attempt, heard_at=at)
    reached = select(worker.c.store).where(worker.c.name == beat.worker).scalar_subquery()
    sample = select(run.c.id).where(run.c.status == "queued", run.c.kind == "sample")
    served = sample.where(or_(run.c.store.is_(None), run.c.store == reached)).limit(1)
    return p.HeartbeatReply(
        requested="stop" if row["requested"] in STOPS else row["requested"],
        stop_at_once=row["requested"] == "stop_at_once",
        lease_seconds=terms.ttl,
        samples_waiting=tx.execute(served).first() is not None,
    )


def finish(tx: Connection, run_id: int, sent: p.Finish, terms: Terms, at: datetime) -> bool:
    """End the attempt; whether it had been ended like that before. Raises LeaseLost."""
    row = _held(tx, run_id, sent.attempt, sent.outcome, terms)
    if row is None:
        return True
    status = _settled(sent.outcome, row["requested"])
    error = sent.error.model_dump() if sent.error is not None and status == "stopped" else None
    _end(tx, run_id, sent.attempt, sent.outcome, {"status": status, "error": error}, at)
    if sent.error is not None:
        line = p.LogLine(level="warning", message=f"attempt {sent.attempt} ended: {sent.error.message}")
        events.log(tx, run_id, sent.attempt, line, at)
    elif sent.outcome in ASKED:
        line = p.LogLine(message=f"attempt {sent.attempt} ended after step {row['step']}: {ASKED[sent.outcome]}")
        events.log(tx, run_id, sent.attempt, line, at)
    return False


def _settled(outcome: p.Outcome, requested: str) -> str:
    """The status after an attempt. What the person asked last counts: a pause that was taken back goes on, a stop stays."""
    if outcome == "paused" and requested == "nothing":
        return "queued"
    if outcome in ("paused", "released") and requested in STOPS:
        return "stopped"
    if outcome == "released" and requested == "pause":
        return "paused"
    return OUTCOMES[outcome]


def fail(tx: Connection, run_id: int, sent: p.Fail, terms: Terms, at: datetime) -> bool:
    """End the attempt as failed, or queue the run again within its budget; whether it had failed like that before. Raises LeaseLost."""
    row = _held(tx, run_id, sent.attempt, "failed", terms)
    if row is None:
        return True
    failures, status = row["failures"] + 1, "failed"
    again = sent.retryable and failures < terms.max_failures
    repeated = again and _same(tx, run_id, sent)
    if again and not repeated:
        status = _settled("released", row["requested"])
    values = {"status": status, "failures": failures, "error": sent.error.model_dump()}
    _end(tx, run_id, sent.attempt, "failed", values, at)
    # in the run's log, where the next attempt leaves it
    events.log(tx, run_id, sent.attempt, p.LogLine(level="error", message=_ended(sent.attempt, sent)), at)
    if repeated:
        text = (
            "the attempt before ended so in the same step, and it is not tried again: mend the cause, then press Retry"
        )
        events.log(tx, run_id, sent.attempt, p.LogLine(level="warning", message=text), at)
    return False


def _ended(number: int, sent: p.Fail) -> str:
    return f"attempt {number} ended: {sent.error.message}"


def _same(tx: Connection, run_id: int, sent: p.Fail) -> bool:
    """Whether the attempt before met the same crash in the same step: a third one would meet it, too."""
    before = sent.attempt - 1
    same = (log_line.c.attempt == before) & (log_line.c.level == "error") & (log_line.c.message == _ended(before, sent))
    said = select(log_line.c.id).where(log_line.c.run_id == run_id, same)
    if sent.error.code != "crash" or tx.execute(said).first() is None:
        return False
    return _reached(tx, run_id, before) == _reached(tx, run_id, sent.attempt)


def _reached(tx: Connection, run_id: int, number: int) -> int:
    """The step in which an attempt ended: the one behind those that it reported, else the one where it began."""
    began = select(attempt.c.from_step).where(attempt.c.run_id == run_id, attempt.c.attempt == number)
    last = select(func.max(metric.c.step)).where(metric.c.run_id == run_id, metric.c.attempt == number)
    reported = tx.execute(last).scalar_one()
    return int(tx.execute(began).scalar_one() or 0) if reported is None else int(reported) + 1


def _held(tx: Connection, run_id: int, number: int, outcome: str, terms: Terms) -> RowMapping | None:
    """The row of a run that an attempt is to end; None if the attempt, the run's newest, ended like that before. Raises LeaseLost."""
    try:
        return lease.hold(tx, run_id, number, terms)
    except LeaseLost:
        newest = (run.c.id == attempt.c.run_id) & (run.c.attempt == attempt.c.attempt)
        query = select(attempt.c.outcome).join(run, newest).where(attempt.c.run_id == run_id)
        if tx.execute(query.where(attempt.c.attempt == number)).scalar_one_or_none() != outcome:
            raise
        return None


def _end(tx: Connection, run_id: int, number: int, outcome: str, values: dict[str, Any], at: datetime) -> None:
    status = str(values["status"])
    ended = at if status in TERMINAL else None
    tx.execute(update(run).where(run.c.id == run_id).values(**IDLE, **values, finished_at=ended))
    _note(tx, run_id, number, outcome=outcome, heard_at=at)
    tell(tx, run_id, status, at)


def _note(tx: Connection, run_id: int, number: int, **values: Any) -> None:
    tx.execute(update(attempt).where(attempt.c.run_id == run_id, attempt.c.attempt == number).values(values))


def tell(tx: Connection, run_id: int, status: str, at: datetime) -> None:
    """The event that a status changed."""
    payload: dict[str, Json] = {"status": status, "requested": "nothing"}
    events.record(tx, run_id, "status", payload, at)
