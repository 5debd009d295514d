"""A worker's report becomes rows, once: it is numbered, and sending it again changes nothing."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, RowMapping, insert, select, update

from backend import events
from backend.clock import Terms
from backend.contract import protocol as p
from backend.contract.base import finite
from backend.contract.config import RECORDED
from backend.errors import BadRequest, Conflict, Invalid, LeaseLost, ReportConflict
from backend.field_errors import FieldError, field_errors
from backend.queue import lease
from backend.runs import store as runs
from backend.storage import history
from backend.storage.tables import report, run
from backend.telemetry import groups, metrics, pairs, replayed, summary, traces

RECENT_STEPS = 10
MOST_NAMES = 2000  # of metrics, in a run


def parse(body: bytes) -> p.Report:
    """The report in a body, which is read outside FastAPI's event loop since it is large, with the same errors.

    Raises BadRequest if it is not JSON, and Invalid for wrong fields. Python's parser lets lone surrogates through, which the
    contract's texts then replace.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The body is not valid JSON: {type(error).__name__}.") from None
    try:
        return p.Report.model_validate(data)
    except ValidationError as error:
        raise Invalid(*field_errors(error.errors(include_url=False), data)) from None


def require_sound(sent: p.Report) -> None:
    """Raises Invalid for metrics or groups without a step, for a part with more than groups, and for two groups, or completions, in one place."""
    if sent.part and (sent.step is None or not sent.groups or sent.metrics or sent.trace):
        message = "needs a step and groups, and brings nothing else; send metrics and trace with the step's last report"
        raise Invalid(FieldError("part", message))
    if sent.late and (not sent.metrics or sent.groups or sent.trace or sent.pairs or sent.part):
        raise Invalid(FieldError("late", "needs metrics, and brings nothing else"))
    if sent.step is None and (sent.metrics or sent.groups or sent.trace):
        raise Invalid(FieldError("step", "is required with metrics, groups or a trace"))
    _require_places("groups", [group.index for group in sent.groups])
    for place, group in enumerate(sent.groups):
        _require_places(f"groups.{place}.completions", [one.index for one in group.completions])


def _require_places(field: str, indices: Sequence[int]) -> None:
    first: dict[int, int] = {}
    for place, index in enumerate(indices):
        if first.setdefault(index, place) != place:
            message = f"is {index}, as {field}.{first[index]}.index is; number them differently"
            raise Invalid(FieldError(f"{field}.{place}.index", message))


def store(
    tx: Connection,
    run_id: int,
    sent: p.Report,
    body_sha256: str,
    trace: traces.StoredTrace | None,
    terms: Terms,
    at: datetime,
) -> bool:
    """Add a report; True if it had been stored before. Raises LeaseLost, ReportConflict, and Conflict before the start."""
    try:
        row = lease.hold(tx, run_id, sent.attempt, terms)
    except LeaseLost:
        current = select(run.c.id).where(run.c.id == run_id, run.c.attempt == sent.attempt)
        if tx.execute(current).first() is not None and _seen(tx, run_id, sent, body_sha256):
            return True
        raise
    if _seen(tx, run_id, sent, body_sha256):
        return True
    values = {"run_id": run_id, "attempt": sent.attempt, "seq": sent.seq, "body_sha256": body_sha256}
    tx.execute(insert(report).values(**values, step=sent.trained_step, seconds=sent.seconds))
    if sent.step is not None:
        _store_step(tx, row, sent, sent.step, trace, at)
    for line in sent.logs:
        events.log(tx, run_id, sent.attempt, line, at)
    return False


def _seen(tx: Connection, run_id: int, sent: p.Report, body_sha256: str) -> bool:
    same = (report.c.run_id == run_id) & (report.c.attempt == sent.attempt) & (report.c.seq == sent.seq)
    earlier = tx.execute(select(report.c.body_sha256).where(same)).scalar_one_or_none()
    if earlier is not None and earlier != body_sha256:
        raise ReportConflict(f"Report {sent.seq} of attempt {sent.attempt} was stored before, with another body.")
    return earlier is not None


def _store_step(
    tx: Connection, row: RowMapping, sent: p.Report, step: int, trace: traces.StoredTrace | None, at: datetime
) -> None:
    run_id = row["id"]
    if history.from_step(tx, run_id, sent.attempt) is None:
        raise Conflict(f"Attempt {sent.attempt} of run {run_id} has not said where it starts; send start first.")
    _require_new(tx, run_id, sent, step)
    runs.require_step(row, step, done=not sent.part and sent.trained_step is None)
    if sent.part:
        groups.store(tx, run_id, sent.attempt, step, sent.groups, ())
        return
    if sent.late and row["kind"] != RECORDED:
        raise Invalid(FieldError("late", "is for recorded runs; send the metrics with their step"))
    names = row["summary"].keys() | sent.metrics.keys()  # some hundred; each further one is a series that pages read
    if len(names) > MOST_NAMES:
        message = (
            f"would give the run {len(names):,} different metrics, and at most {MOST_NAMES:,} are kept; use fewer names"
        )
        raise Invalid(FieldError("metrics", message))
    measured = sent.metrics
    if sent.late:
        there = metrics.names_at(tx, run_id, step)
        measured = {name: value for name, value in measured.items() if name not in there}
    metrics.store(tx, run_id, sent.attempt, step, measured)
    values: dict[str, Any] = summary.extended(tx, row, step, measured)
    groups.store(tx, run_id, sent.attempt, step, sent.groups, trace.completions if trace else ())
    pairs.store(tx, run_id, sent.attempt, step, sent.pairs)
    replayed.store(tx, run_id, sent)
    if sent.trained_step is not None:
        if row["kind"] == RECORDED:  # it need not say how long it is to be
            values["total_steps"] = max(row["total_steps"], step + 1)
        values |= {"step": step + 1, "phase": None, "phase_done": None, "phase_total": None}
        values["eta_seconds"] = _eta(tx, run_id, sent, row["total_steps"] - step - 1)
        events.record(tx, run_id, "step", {"step": step}, at)
    if trace is not None:
        traces.record(tx, run_id, sent, trace)
    tx.execute(update(run).where(run.c.id == run_id).values(values))


def _require_new(tx: Connection, run_id: int, sent: p.Report, step: int) -> None:
    """Raises ReportConflict if the attempt has completed the step before, or reported one of these groups."""
    if sent.trained_step is None and not sent.part:
        return
    same = select(report.c.seq).where(
        report.c.run_id == run_id, report.c.attempt == sent.attempt, report.c.step == step
    )
    if len(tx.execute(same.limit(2)).all()) > (not sent.part):  # one that completes the step is there itself
        raise ReportConflict(f"Attempt {sent.attempt} reported step {step} before, under another number.")
    twice = groups.indices(tx, run_id, sent.attempt, step) & {group.index for group in sent.groups}
    if twice:
        raise ReportConflict(f"Attempt {sent.attempt} reported group {min(twice)} of step {step} before.")


def _eta(tx: Connection, run_id: int, sent: p.Report, remaining: int) -> float | None:
    """Seconds to go at the pace of the last steps, evaluations included; after the first step, at that step's time.

    None if nothing was measured, or the time is too large for a number.
    """
    query = (
        select(report.c.step, report.c.seconds)
        .where(report.c.run_id == run_id, report.c.attempt == sent.attempt)
        .where(report.c.step.is_not(None), report.c.seconds.is_not(None))
        .order_by(report.c.step.desc())
        .limit(RECENT_STEPS + 1)
    )
    recent = tx.execute(query).all()
    pace = sent.metrics.get("step_time")
    if len(recent) >= 2:
        newest, oldest = recent[0], recent[-1]
        pace = max(0.0, (newest.seconds - oldest.seconds) / (newest.step - oldest.step))
    return None if pace is None else finite(pace * remaining)
