"""The SQL of checkpoints, and those that a configuration names: the model's, and those of its reward models."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePosixPath

from sqlalchemy import Connection, RowMapping, insert, select, update

from backend import events
from backend.contract import protocol as p
from backend.contract.base import Json
from backend.contract.model import checkpoint_of
from backend.errors import Conflict, Invalid
from backend.field_errors import FieldError
from backend.runs.needs import ORIGIN, Needs, needs_of, sources_in
from backend.storage import history
from backend.storage.tables import attempt, checkpoint, run


def register(tx: Connection, run_id: int, sent: p.CheckpointReport, at: datetime) -> bool:
    """Record a checkpoint; whether it was recorded before. Raises Conflict if another one was, at the same step."""
    parts = PurePosixPath(sent.path).parts
    if len(parts) < 2 or parts[0] != f"run-{run_id}" or ".." in parts:
        raise Invalid(FieldError("path", f"must lie below run-{run_id}/ of the store (got {sent.path!r})"))
    same = (checkpoint.c.run_id == run_id) & (checkpoint.c.attempt == sent.attempt) & (checkpoint.c.step == sent.step)
    earlier = tx.execute(select(checkpoint.c.sha256).where(same)).scalar_one_or_none()
    if earlier is not None and earlier != sent.sha256:
        raise Conflict(f"Attempt {sent.attempt} of run {run_id} registered another checkpoint at step {sent.step}.")
    if earlier is not None:
        return True
    tx.execute(insert(checkpoint).values(run_id=run_id, created_at=at, **sent.model_dump()))
    values = {"store": sent.store}
    needs, config = tx.execute(select(run.c.needs, run.c.config).where(run.c.id == run_id)).one()
    if Needs.read(needs).device:  # a fork, that has come to where it goes on by itself: from here any worker will do
        values["needs"] = needs_of(config).written()
    tx.execute(update(run).where(run.c.id == run_id).values(values))
    events.record(tx, run_id, "checkpoint", {"step": sent.step}, at)
    return False


def live(tx: Connection, run_id: int) -> list[RowMapping]:
    """The checkpoints of the live history by step, one for each."""
    query = (
        select(checkpoint)
        .join(attempt, history.of_attempt(checkpoint))
        .where(checkpoint.c.run_id == run_id, history.live_state(checkpoint.c.step))
        .order_by(checkpoint.c.step, checkpoint.c.attempt)
    )
    by_step = {row["step"]: row for row in tx.execute(query).mappings()}
    return list(by_step.values())


def reachable(tx: Connection, run_id: int) -> list[RowMapping]:
    """The live checkpoints of a run's whole history by step: of a fork also those of its trunk, with the one that it began from."""
    return [
        row
        for part in history.segments(tx, run_id)
        for row in live(tx, part.run_id)
        if part.first <= row["step"] <= part.last + 1
    ]


def at(tx: Connection, run_id: int, step: int) -> RowMapping | None:
    """The newest of these at a step."""
    return next((row for row in reversed(reachable(tx, run_id)) if row["step"] == step), None)


def live_at(tx: Connection, run_id: int, step: int) -> RowMapping | None:
    """The live checkpoint at a step."""
    return next((row for row in live(tx, run_id) if row["step"] == step), None)


def _fitting(tx: Connection, run_id: int, step: int, *, scores: bool) -> RowMapping | str:
    """The live checkpoint that a run starts from, or that `scores` its completions; if it has none, or one that cannot, why."""
    found = live_at(tx, run_id, step)
    if found is None:
        return f"run {run_id} has no checkpoint at step {step}; choose one it has"
    kind = tx.execute(select(run.c.kind).where(run.c.id == run_id)).scalar_one()
    if scores and kind != "reward_model":
        return f"run {run_id} trained a policy, which writes completions and scores none; choose a run of kind reward_model"
    if not scores and kind == "reward_model":
        return f"run {run_id} trained a reward model, which scores completions and writes none; use it as a reward"
    return found


def reference(row: RowMapping) -> p.CheckpointRef:
    """How a claim names it."""
    return p.CheckpointRef.model_validate(dict(row))


def named_by(tx: Connection, source: str) -> p.CheckpointRef | None:
    """The checkpoint that a source names, if it names one that is there."""
    named = checkpoint_of(source)
    row = live_at(tx, *named) if named else None
    return reference(row) if row is not None else None


def store_of(tx: Connection, config: Mapping[str, Json]) -> str | None:
    """The store that all of them lie in; None where the configuration names none.

    Raises Invalid where one is not there or not of its kind, and where no single worker could reach all of them.
    """
    found: str | None = None
    errors: list[FieldError] = []
    for field, source in sources_in(config):
        if (named := checkpoint_of(source)) is None:
            continue
        row = _fitting(tx, *named, scores=field not in ("model.source", ORIGIN))
        if isinstance(row, str):
            errors.append(FieldError(field, row))
            continue
        lies = str(row["store"])
        if found is not None and lies != found:
            where = f"this checkpoint lies in the store {lies} and the run's other one in {found}"
            errors.append(FieldError(field, f"{where}: no worker reaches both"))
        found = found or lies
    if errors:
        raise Invalid(*errors)
    return found


def reward_references(tx: Connection, config: Mapping[str, Json]) -> dict[str, p.CheckpointRef]:
    """What a worker needs to open the reward models, by their source; one that is gone is left out."""
    models = [source for field, source in sources_in(config) if field not in ("model.source", ORIGIN)]
    return {source: found for source in models if (found := named_by(tx, source)) is not None}
