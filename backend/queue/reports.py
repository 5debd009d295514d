"""A worker's report becomes rows, once: it is numbered, and sending it again changes nothing."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

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


class Received(NamedTuple):
    """A report, the hash of its body, and its trace file, which lies in its place."""

    sent: p.Report
    body_sha256: str
    trace: traces.StoredTrace | None = None


def lines_of(body: bytes) -> list[bytes]:
    """The lines of a body that has a report in each. Raises BadRequest for too many; a body may be millions of line ends."""
    lines = body.removesuffix(b"\n").split(b"\n", p.MOST_TOGETHER)
    if len(lines) > p.MOST_TOGETHER:
        raise BadRequest(
            f"The body has more than {p.MOST_TOGETHER} lines; send that many reports at once, and the others behind them."
        )
    return lines


def parse_lines(lines: Sequence[bytes]) -> list[p.Report]:
    """The reports that come together. Raises BadRequest and Invalid as `parse` does, with the place of the line, and Invalid for those that
    do not belong together.
    """
    sent: list[p.Report] = []
    for number, line in enumerate(lines, 1):
        try:
            sent.append(one := parse(line))
            _require_together(one, sent[0])
        except BadRequest as error:
            raise BadRequest(f"Line {number}: {error.message}") from None
        except Invalid as error:
            fields = (FieldError(f"line {number}: {each.field}", each.message) for each in error.errors)
            raise Invalid(*fields) from None
    return sent


def _require_together(one: p.Report, first: p.Report) -> None:
    if one.attempt != first.attempt:
        raise Invalid(FieldError("attempt", f"is {one.attempt}, and {first.attempt} in the first report"))
    if one.part or one.late:
        raise Invalid(FieldError("part" if one.part else "late", "is for a report that comes by itself"))


def parse(body: bytes) -> p.Report:
    """The report in a body, which is read outside FastAPI's event loop since it is large, with the same errors.

    Raises BadRequest if it is not JSON, and Invalid for wrong fields and an unsound report. Python's parser lets lone surrogates through,
    which the contract's texts then replace.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The body is not valid JSON: {type(error).__name__}.") from None
    try:
        sent = p.Report.model_validate(data)
    except ValidationError as error:
        raise Invalid(*field_errors(error.errors(include_url=False), data)) from None
    _require_sound(sent)
    return sent


def _require_sound(sent: p.Report) -> None:
    """Raises Invalid for metrics or groups without a step, for a part with more than groups, and for two groups, or completions, in one place."""
    if sent.part and (
        sent.step is None or not sent.groups or sent.metrics or sent.trace or sent.pairs or sent.replayed
    ):
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


def store(tx: Connection, run_id: int, received: Sequence[Received], terms: Terms, at: datetime) -> bool:
    """Add reports of one attempt; True if all had been stored before. A part, and late metrics, come by themselves.

    Raises LeaseLost, ReportConflict, Conflict before the start, and Invalid for a step beyond the run's last, late metrics of a run that is
    not recorded, and too many names of metrics.
    """
    attempt = received[0].sent.attempt
    try:
        row = lease.hold(tx, run_id, attempt, terms)
    except LeaseLost:
        current = select(run.c.id).where(run.c.id == run_id, run.c.attempt == attempt)
        if tx.execute(current).first() is not None and not _new(tx, run_id, attempt, received):
            return True
        raise
    new = _new(tx, run_id, attempt, received)
    if not new:
        return True
    place = {"run_id": run_id, "attempt": attempt}
    rows = [
        place | {"seq": sent.seq, "body_sha256": sha256, "step": sent.trained_step, "seconds": sent.seconds}
        for sent, sha256, _ in new
    ]
    tx.execute(insert(report), rows)
    if of_steps := [(one.sent.step, one) for one in new if one.sent.step is not None]:
        _store_steps(tx, row, attempt, of_steps)
    events.of_reports(tx, run_id, attempt, [one.sent for one in new], at)
    return False


def _new(tx: Connection, run_id: int, attempt: int, received: Sequence[Received]) -> list[Received]:
    """Those that are not stored yet. Raises ReportConflict."""
    numbers = [one.sent.seq for one in received]
    query = select(report.c.seq, report.c.body_sha256).where(report.c.run_id == run_id, report.c.attempt == attempt)
    known: dict[int, str] = dict(map(tuple, tx.execute(query.where(report.c.seq.in_(numbers)))))
    new: list[Received] = []
    for one in received:
        earlier = known.get(one.sent.seq)
        if earlier is None:
            known[one.sent.seq] = one.body_sha256
            new.append(one)
        elif earlier != one.body_sha256:
            raise ReportConflict(f"Report {one.sent.seq} of attempt {attempt} was stored before, with another body.")
    return new


def _store_steps(tx: Connection, row: RowMapping, attempt: int, new: Sequence[tuple[int, Received]]) -> None:
    """What reports bring of their steps."""
    run_id = row["id"]
    if history.from_step(tx, run_id, attempt) is None:
        raise Conflict(f"Attempt {attempt} of run {run_id} has not said where it starts; send start first.")
    _require_new(tx, run_id, attempt, new)
    for step, (sent, _, _) in new:
        runs.require_step(row, step, done=not sent.part and sent.trained_step is None)
    measured = [(step, _measured(tx, row, step, one.sent)) for step, one in new if not one.sent.part]
    names = row["summary"].keys() | {name for _, of_step in measured for name in of_step}
    if len(names) > MOST_NAMES:  # some hundred are usual, and each is a series that pages read
        text = (
            f"would give the run {len(names):,} different metrics, and at most {MOST_NAMES:,} are kept; use fewer names"
        )
        raise Invalid(FieldError("metrics", text))
    metrics.store(tx, run_id, attempt, measured)
    sampled = [(step, one.sent.groups, one.trace.completions if one.trace else frozenset()) for step, one in new]
    groups.store(tx, run_id, attempt, sampled)
    traces.record(tx, run_id, attempt, [(step, one.trace) for step, one in new if one.trace is not None])
    values: dict[str, Any] = {}
    for step, of_step in measured:
        values |= summary.extended(tx, {**row, **values}, step, of_step)
    for step, (sent, _, _) in new:
        pairs.store(tx, run_id, attempt, step, sent.pairs)
        replayed.store(tx, run_id, sent)
        if sent.trained_step is not None:
            values |= {"step": step + 1, "phase": None, "phase_done": None, "phase_total": None}
            if row["kind"] == RECORDED:  # it need not say how long it is to be
                values["total_steps"] = max(values.get("total_steps", row["total_steps"]), step + 1)
    trained = [one.sent for _, one in new if one.sent.trained_step is not None]
    if trained:
        values["eta_seconds"] = _eta(tx, run_id, trained[-1], {**row, **values}["total_steps"] - values["step"])
    if values:
        tx.execute(update(run).where(run.c.id == run_id).values(values))


def _measured(tx: Connection, row: RowMapping, step: int, sent: p.Report) -> Mapping[str, float | None]:
    """The metrics of a report; of late ones those that the step has not."""
    if not sent.late:
        return sent.metrics
    if row["kind"] != RECORDED:
        raise Invalid(FieldError("late", "is for recorded runs; send the metrics with their step"))
    there = metrics.names_at(tx, row["id"], step)
    return {name: value for name, value in sent.metrics.items() if name not in there}


def _require_new(tx: Connection, run_id: int, attempt: int, new: Sequence[tuple[int, Received]]) -> None:
    """Raises ReportConflict if the attempt has completed one of the steps before, or reported one of these groups."""
    steps = [step for step, one in new if one.sent.part or one.sent.trained_step is not None]
    if not steps:
        return
    query = select(report.c.step).where(report.c.run_id == run_id, report.c.attempt == attempt)
    completed = Counter(tx.execute(query.where(report.c.step.in_(steps))).scalars())
    there = groups.indices(tx, run_id, attempt, steps)
    for step, (sent, _, _) in new:
        indices = {group.index for group in sent.groups}
        if sent.part or sent.trained_step is not None:
            if completed[step] > (not sent.part):  # one that completes the step is there itself
                raise ReportConflict(f"Attempt {attempt} reported step {step} before, under another number.")
            if twice := there[step] & indices:
                raise ReportConflict(f"Attempt {attempt} reported group {min(twice)} of step {step} before.")
        there[step] |= indices


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
