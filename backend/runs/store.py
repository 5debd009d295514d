"""The SQL of runs: insert, read, list, change; and a row as the contract's Run."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    RowMapping,
    case,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from backend import events
from backend.contract import records as r
from backend.contract.config import RECORDED
from backend.contract.queries import RunQuery
from backend.errors import Invalid, NotFound
from backend.field_errors import FieldError
from backend.runs import curve
from backend.storage import history
from backend.storage.statements import newest_first
from backend.storage.tables import attempt, metric, report, run, trunk

WAITING = ("queued", "running", "paused")
DELETED = "deleted"
"""The status of a run whose rows are still being removed. Nobody sees such a run; no record of the contract has it."""
PRESENT = run.c.status != DELETED

_TRAINED = (
    select(report.c.seconds)
    .where(report.c.run_id == run.c.id, report.c.seconds.is_not(None))
    .order_by(report.c.attempt.desc(), report.c.seq.desc())
    .limit(1)
    .scalar_subquery()
    .label("trained_seconds")
)
"""What the newest report says: the workers count it over all attempts."""

_REWARDS = (
    select(metric.c.value)
    .join(attempt, history.of_attempt(metric))
    .where(metric.c.run_id == run.c.id, metric.c.name == "reward", history.live(metric.c.step))
    .order_by(metric.c.step.desc())
    .limit(r.REWARD_STEPS)
    .correlate(run)
    .subquery()
)
_RECENT_REWARD = select(func.avg(_REWARDS.c.value / 16) * 16).scalar_subquery().label("recent_reward")
"""Sixteenths, which are exact: the sum of the largest rewards is beyond every number."""

FORKED_AT = select(func.max(trunk.c.below)).where(trunk.c.run_id == run.c.id).correlate(run).scalar_subquery()
_SHOWN = select(run, _TRAINED, _RECENT_REWARD, FORKED_AT.label("forked_at"))


def claim_order(of: FromClause) -> tuple[ColumnElement[Any], ...]:
    """The order in which waiting runs are claimed. Samples are short, and somebody waits for them."""
    return case((of.c.kind == "sample", 0), else_=1), of.c.priority.desc(), of.c.id


def create(tx: Connection, new: Mapping[str, Any], at: datetime) -> int:
    """Queue a run with these columns, which were checked; its number."""
    values = {
        "step": 0,
        **new,
        "status": "queued",
        "requested": "nothing",
        "attempt": 0,
        "failures": 0,
        "summary": {},
        "sparkline": curve.empty(),
        "created_at": at,
    }
    run_id: int = tx.execute(insert(run).values(values).returning(run.c.id)).scalar_one()
    events.record(tx, run_id, "status", {"status": "queued", "requested": "nothing"}, at)
    return run_id


def row_of(tx: Connection, run_id: int) -> RowMapping:
    """The run's row. Raises NotFound."""
    row = tx.execute(_SHOWN.where(run.c.id == run_id, PRESENT)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"There is no run {run_id}.")
    return row


def is_present(tx: Connection, run_id: int) -> bool:
    """Whether there is such a run."""
    return tx.execute(select(run.c.id).where(run.c.id == run_id, PRESENT)).first() is not None


def require(tx: Connection, run_id: int) -> None:
    """Raises NotFound where there is no such run."""
    if not is_present(tx, run_id):
        raise NotFound(f"There is no run {run_id}.")


def of_present(table: FromClause) -> ColumnElement[bool]:
    """Whether a row's run is there, or a fork of it: rows of a deleted one stay for a while."""
    return or_(exists().where(run.c.id == table.c.run_id, PRESENT), needed_by_forks(table.c.run_id))


def needed_by_forks(run_id: ColumnElement[int]) -> ColumnElement[bool]:
    """Whether a run that is there has steps of this one in its history."""
    fork = run.alias()
    return exists().where(trunk.c.of_run_id == run_id, fork.c.id == trunk.c.run_id, fork.c.status != DELETED)


def forks_of(tx: Connection, run_id: int) -> list[int]:
    """The runs that have steps of this one in their history."""
    query = select(trunk.c.run_id).join(run, run.c.id == trunk.c.run_id).where(trunk.c.of_run_id == run_id, PRESENT)
    return list(tx.execute(query.order_by(trunk.c.run_id)).scalars())


def get(tx: Connection, run_id: int) -> r.Run:
    """One run."""
    return run_from_row(row_of(tx, run_id), queue_positions(tx).get(run_id))


def require_step(row: RowMapping, step: int, *, done: bool) -> None:
    """Raises Invalid for a step that the run does not have; `done` counts steps, and a run may be done with all of them."""
    last = row["total_steps"] - (not done)
    if step > last and row["kind"] != RECORDED:
        message = f"is beyond run {row['id']}, whose last is {last} (got {step})"
        raise Invalid(FieldError("step", message))


def queue_positions(tx: Connection) -> dict[int, int]:
    """1 for the run that is claimed next, by run."""
    waiting = tx.execute(select(run.c.id).where(run.c.status == "queued").order_by(*claim_order(run))).scalars()
    return {run_id: position for position, run_id in enumerate(waiting, 1)}


def page(tx: Connection, query: RunQuery) -> r.Page[r.Run]:
    """Runs, newest first."""
    tags = func.json_each(run.c.tags).table_valued("value", name="tag")
    filters: list[tuple[str | int | None, ColumnElement[bool]]] = [  # one that is None lets every row through
        (query.status, run.c.status == query.status),
        (query.kind, run.c.kind != "sample" if query.kind == "training" else run.c.kind == query.kind),
        (query.recipe, run.c.config["recipe"].as_string() == query.recipe),
        (query.model, run.c.config["model"]["source"].as_string() == query.model),
        (query.tag, select(1).select_from(tags).where(tags.c.value == query.tag).exists()),
        (query.search, run.c.name.icontains(query.search or "", autoescape=True)),
        (query.sweep, run.c.sweep_id == query.sweep),
        (
            query.forked_from,
            exists().where(trunk.c.run_id == run.c.id, trunk.c.of_run_id == query.forked_from).correlate(run),
        ),
    ]
    asked = (condition for value, condition in filters if value is not None)
    rows, cursor = newest_first(tx, _SHOWN.where(PRESENT, *asked), run.c.id, query)
    positions = queue_positions(tx)
    return r.Page[r.Run](items=[run_from_row(row, positions.get(row["id"])) for row in rows], next_cursor=cursor)


def change(tx: Connection, run_id: int, update_: r.RunUpdate) -> None:
    """Set the fields that were sent. Raises NotFound."""
    require(tx, run_id)
    values = {name: value for name, value in update_.model_dump(exclude_unset=True).items() if value is not None}
    if values:
        tx.execute(update(run).where(run.c.id == run_id).values(values))


def run_from_row(row: RowMapping, queue_position: int | None) -> r.Run:
    """The run as lists and pages show it; the stored configuration is passed on unread."""
    values: dict[str, Any] = dict(row)
    progress = progress_from_row(row)
    points = curve.points(values.pop("sparkline"))
    if row["started_at"] and row["finished_at"]:  # the wall clock may have been set back between the two
        values["finished_at"] = max(row["started_at"], row["finished_at"])
    return r.Run.model_validate(
        values | {"progress": progress, "queue_position": queue_position, "reward_sparkline": points}
    )


def progress_from_row(row: RowMapping) -> r.Progress:
    """How far the run of a row is."""
    return r.Progress(
        step=row["step"],
        total_steps=row["total_steps"],
        eta_seconds=row["eta_seconds"],
        phase=row["phase"],
        done=row["phase_done"],
        total=row["phase_total"],
    )
