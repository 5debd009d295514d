"""A fork: a run that goes on from another run's checkpoint, with some of its configuration changed."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, update

from backend.checkpoints import store as checkpoints
from backend.contract.base import Json
from backend.contract.config import RunConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.stored import get
from backend.errors import Invalid
from backend.field_errors import FieldError
from backend.runs import store
from backend.storage import history
from backend.storage.tables import run, trunk
from backend.telemetry import summary

FIXED = {
    "model.source": "the checkpoint has the weights of that model",
    "model.lora": "the checkpoint's adapters have the shapes and the scale that they were made with",
}
"""What a fork cannot change, and why."""


def create(
    tx: Connection, new: Mapping[str, Any], parent: RowMapping, config: RunConfig, step: int, at: datetime
) -> int:
    """Queue a run with these columns as a fork of the parent; its number. Raises Invalid where it cannot go on from there."""
    if not isinstance(config, GrpoConfig) or parent["kind"] != "grpo":
        raise Invalid(
            FieldError(
                "fork_at", f"names a step of run {parent['id']}; only GRPO and PPO runs can be forked, into such runs"
            )
        )
    errors = list(_misfits(parent["config"], config, step))
    found = checkpoints.at(tx, parent["id"], step) if step else None
    if step and found is None:
        saved = ", ".join(str(row["step"]) for row in checkpoints.reachable(tx, parent["id"])) or "none yet"
        errors.append(
            FieldError("fork_at", f"run {parent['id']} has no checkpoint after {step} steps; it has: {saved}")
        )
    elif found is not None and new["store"] not in (None, found["store"]):
        text = f"a reward model lies in the store {new['store']} and the checkpoint in {found['store']}: no worker reaches both"
        errors.append(FieldError("config.rewards", text))
    if errors:
        raise Invalid(*errors)
    begun = {"step": step, "model_commit": parent["model_commit"]}
    run_id = store.create(tx, {**new, **begun, "store": new["store"] if found is None else found["store"]}, at)
    rows = [
        {"run_id": run_id, "below": min(step, one.last + 1), "of_run_id": one.run_id}
        for one in history.segments(tx, parent["id"])
        if one.first < step
    ]
    if rows:
        tx.execute(insert(trunk), rows)
        tx.execute(update(run).where(run.c.id == run_id).values(summary.recomputed(tx, run_id)))
    return run_id


def _misfits(before: Mapping[str, Json], config: GrpoConfig, step: int) -> Iterator[FieldError]:
    now = config.model_dump(mode="json")
    for field, why in FIXED.items():
        if get(dict(before), field) != get(now, field):
            yield FieldError(
                f"config.{field}", f"cannot change in a fork: {why}; take it back, or clone the run to begin at step 0"
            )
    critics = [get(one, "algorithm.advantage.kind") == "gae" for one in (dict(before), now)]
    if critics[0] != critics[1]:
        what = (
            "has no value head, which this advantage needs"
            if critics[1]
            else "has a value head, which this advantage would not train"
        )
        yield FieldError("config.algorithm.advantage", f"the checkpoint {what}; clone the run to begin at step 0")
    if config.budget.steps <= step:
        yield FieldError("config.budget.steps", f"the fork begins after {step} steps; let it have more")
