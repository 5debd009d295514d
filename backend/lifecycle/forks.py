"""A fork: a run that goes on from a step of another run, with some of its configuration changed.

If the step has a checkpoint, the fork begins from that. If not, its worker does the steps after the checkpoint before it again, exactly, and
then saves one for the fork.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, RowMapping, insert, select, update

from backend.checkpoints import replays
from backend.checkpoints import store as checkpoints
from backend.contract.base import Json
from backend.contract.config import RunConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.stored import get
from backend.errors import Invalid
from backend.field_errors import FieldError
from backend.runs import store
from backend.runs.needs import Needs, needs_of
from backend.storage import history
from backend.storage.tables import run, trunk, upload
from backend.telemetry import summary

FIXED = {
    "model.source": "the checkpoint has the weights of that model",
    "model.lora": "the checkpoint's adapters have the shapes and the scale that they were made with",
}
"""What a fork cannot change, and why."""
MOST_LISTED = 12


class Beginning(NamedTuple):
    """Where a fork goes on from, and what that asks of its worker beside its configuration."""

    checkpoint: RowMapping | None  # None: its parent's beginning
    needs: Needs


def beginning(tx: Connection, parent: RowMapping, config: RunConfig, step: int, store_name: str | None) -> Beginning:
    """Where a run of this configuration goes on from a step of the parent. Its reward models lie in the store.

    Raises Invalid where it cannot go on from there.
    """
    if not isinstance(config, GrpoConfig) or parent["kind"] != "grpo":
        text = f"names a step of run {parent['id']}; only GRPO and PPO runs can be forked, into such runs"
        raise Invalid(FieldError("fork_at", text))
    errors = list(_misfits(parent["config"], config, step))
    owner = history.owner(tx, parent["id"], step - 1) if step else parent["id"]
    found, needs = replays.start_of(tx, owner, step) if step else None, needs_of(config.model_dump(mode="json"))
    if step and (found is None or found["step"] < step):
        way = _between(tx, parent["id"], owner, config, step)
        if isinstance(way, replays.Way):
            found, needs = way.checkpoint, replace(needs, device=way.device, versions=way.versions)
        else:
            errors.append(FieldError("fork_at", way))
    if found is not None and store_name not in (None, found["store"]):
        text = f"a reward model lies in the store {store_name} and the checkpoint in {found['store']}: no worker reaches both"
        errors.append(FieldError("config.rewards", text))
    if errors:
        raise Invalid(*errors)
    return Beginning(found, needs)


def create(
    tx: Connection, new: Mapping[str, Any], parent: RowMapping, config: RunConfig, step: int, at: datetime
) -> int:
    """Queue a run with these columns as a fork of the parent; its number. Raises Invalid where it cannot go on from there."""
    found, needs = beginning(tx, parent, config, step, new["store"])
    begun = {"step": step, "model_commit": parent["model_commit"], "needs": needs.written()}
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


def _between(tx: Connection, parent_id: int, owner: int, config: GrpoConfig, step: int) -> replays.Way | str:
    """How a step without a checkpoint is reached; if it cannot be, why."""
    saved = [row["step"] for row in checkpoints.reachable(tx, parent_id)]
    if not saved or step > saved[-1]:
        return f"run {parent_id} has no checkpoint after {step} steps or later, and may still do them differently; {_listed(saved)}"
    row = tx.execute(select(run).where(run.c.id == owner)).mappings().one()
    trained, data = replays.repeatable(row), row["upload_id"]
    if isinstance(trained, str):
        way: replays.Way | str = trained
    elif data is not None and tx.execute(select(upload.c.id).where(upload.c.id == data)).first() is None:
        way = f"upload {data}, on which these steps were trained, is deleted"
    elif config.compute.processes > 1:
        way = f"{config.compute.processes} processes are asked for, and the steps up to there are done again by one"
    else:
        way = replays.way_to(tx, owner, step, last=step - 1)
    if isinstance(way, str):
        return f"run {parent_id} has no checkpoint after {step} steps, and cannot be brought there again ({way}); {_listed(saved)}"
    return way


def _listed(saved: Sequence[int]) -> str:
    if not saved:
        return "it has none yet"
    few = ", ".join(f"{step:,}" for step in saved[-MOST_LISTED:])
    return f"it has {'up to the newest' if len(saved) > MOST_LISTED else 'these'}: {few}"


def _misfits(before: Mapping[str, Json], config: GrpoConfig, step: int) -> Iterator[FieldError]:
    now = config.model_dump(mode="json")
    for field, why in FIXED.items():
        if get(dict(before), field) != get(now, field):
            yield FieldError(
                f"config.{field}", f"cannot change in a fork: {why}; take it back, or clone the run to begin at step 0"
            )
    critics = [get(one, "algorithm.advantage.kind") == "gae" for one in (dict(before), now)]
    if critics[0] != critics[1]:
        missing, idle = (
            "no value head, which this advantage needs",
            "a value head, which this advantage would not train",
        )
        what = missing if critics[1] else idle
        yield FieldError("config.algorithm.advantage", f"the checkpoint has {what}; clone the run to begin at step 0")
    if config.budget.steps <= step:
        yield FieldError("config.budget.steps", f"the fork begins after {step} steps; let it have more")
