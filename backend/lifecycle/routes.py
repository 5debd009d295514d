"""Routes of runs."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from backend.checkpoints import replays
from backend.contract import records as r
from backend.contract.queries import DeleteQuery, RetryQuery, RunQuery
from backend.contract.replay import ReplayCreate, ReplayOutlook
from backend.errors import Invalid
from backend.field_errors import FieldError
from backend.lifecycle import commands, creation, deletion
from backend.lifecycle.creation import overridden
from backend.runs import reward_texts, store
from backend.services import IdempotencyKey, RowId, Services, ServicesDep, StepNumber, with_reserve
from backend.uploads import columns as uploads

router = APIRouter(prefix="/api/v1/runs", tags=["runs"])


@router.post("", status_code=201)
def create_run(services: ServicesDep, body: r.RunCreate, idempotency_key: IdempotencyKey = None) -> r.Run:
    """Store and queue a run."""
    return _create(services, body, idempotency_key)


def _create(services: Services, body: r.RunCreate, key: str | None) -> r.Run:
    with services.database.read() as tx:  # it may read a file: not under the write lock
        body = body.model_copy(update={"config": uploads.resolved(tx, services.settings.home, body.config)})
        uploads.require_columns(tx, services.settings.home, body.config)
    with services.database.write() as tx:
        return store.get(tx, creation.create(tx, body, key, services.clock.stamp()))


@router.get("")
def list_runs(services: ServicesDep, query: Annotated[RunQuery, Query()]) -> r.Page[r.Run]:
    """Runs, newest first."""
    with services.database.read() as tx:
        return store.page(tx, query)


@router.get("/deletions")
def list_deletions(services: ServicesDep) -> r.Page[r.Deletion]:
    """Deleted runs whose rows are still being removed, in the order in which they go."""
    with services.database.read() as tx:
        return r.Page[r.Deletion](items=deletion.under_way(tx))


@router.get("/{run_id}")
def get_run(services: ServicesDep, run_id: RowId) -> r.Run:
    """One run."""
    with services.database.read() as tx:
        return store.get(tx, run_id)


@router.get("/{run_id}/ranks")
def get_ranks(services: ServicesDep, run_id: RowId) -> r.Ranks:
    """The processes that train the run at this moment, if there are several."""
    with services.database.read() as tx:
        row = store.row_of(tx, run_id)
    if row["status"] != "running":
        return r.Ranks()
    return services.ranks.of(run_id, row["attempt"], services.clock.seconds())


@router.get("/{run_id}/rewards")
def get_rewards(services: ServicesDep, run_id: RowId) -> r.Page[r.RewardVersion]:
    """The files of a worker's folder of rewards that scored the run, with their texts, the newest attempt first."""
    with services.database.read() as tx:
        store.require(tx, run_id)
        return r.Page[r.RewardVersion](items=reward_texts.listed(tx, run_id))


@router.patch("/{run_id}")
def update_run(services: ServicesDep, run_id: RowId, body: r.RunUpdate) -> r.Run:
    """Change name, tags, notes or priority."""
    with services.changing(run_id) as tx:
        store.change(tx, run_id, body)
        return store.get(tx, run_id)


@router.delete("/{run_id}", status_code=204)
@with_reserve
def delete_run(services: ServicesDep, run_id: RowId, query: Annotated[DeleteQuery, Query()]) -> Response:
    """Delete a run that is not running, with all its records; it is gone at once, and they are in a while.

    With `keep_trunk` the records stay, out of sight, as long as a fork needs them; without it a run that has forks stays.
    """
    with services.changing(run_id) as tx:
        deletion.mark(tx, run_id, keep_trunk=query.keep_trunk)
    return Response(status_code=204)


@router.post("/{run_id}/clone", status_code=201)
def clone_run(services: ServicesDep, run_id: RowId, body: r.RunClone) -> r.Run:
    """Queue a copy with some fields changed."""
    return _copy(services, run_id, body, " (copy)")


@router.post("/{run_id}/fork", status_code=201)
def fork_run(services: ServicesDep, run_id: RowId, body: r.RunFork) -> r.Run:
    """Queue a run that goes on from a step of this one, with some fields changed; the steps before it are shared."""
    return _copy(services, run_id, body, f" from step {body.step}", body.step)


def _copy(services: Services, run_id: int, body: r.RunClone, suffix: str, fork_at: int | None = None) -> r.Run:
    with services.database.read() as tx:
        original = store.row_of(tx, run_id)
    name: str = original["name"]
    copy = r.RunCreate(
        name=body.name or (name if name.endswith(suffix) else name[: 200 - len(suffix)] + suffix),
        config=overridden(original["config"], body.overrides),
        tags=original["tags"],
        priority=original["priority"],
        parent_id=run_id,
        fork_at=fork_at,
    )
    return _create(services, copy, None)


@router.get("/{run_id}/steps/{step}/replay")
def get_replay_outlook(services: ServicesDep, run_id: RowId, step: StepNumber) -> ReplayOutlook:
    """Whether the step can be done again exactly; if it cannot, why."""
    with services.database.read() as tx:
        found = replays.configured(tx, run_id, ReplayCreate(step=step))
    return ReplayOutlook(refusal=found) if isinstance(found, str) else ReplayOutlook(config=found)


@router.post("/{run_id}/replays", status_code=201)
def create_replay(
    services: ServicesDep, run_id: RowId, body: ReplayCreate, idempotency_key: IdempotencyKey = None
) -> r.Run:
    """Queue a replay of one of the run's steps; refused if it could not be exact."""
    with services.database.read() as tx:
        found = replays.configured(tx, run_id, body)
    if isinstance(found, str):
        raise Invalid(FieldError("step", f"cannot be done again exactly: {found}"))
    return _create(services, r.RunCreate(config=found, parent_id=run_id), idempotency_key)


def _command(verb: str, services: Services, run_id: int) -> r.Run:
    with services.changing(run_id) as tx:
        commands.command(tx, run_id, verb, services.clock.stamp())
        return store.get(tx, run_id)


@router.post("/{run_id}/pause")
@with_reserve
def pause_run(services: ServicesDep, run_id: RowId) -> r.Run:
    """Pause at the next step; a queued run at once."""
    return _command("pause", services, run_id)


@router.post("/{run_id}/resume")
def resume_run(services: ServicesDep, run_id: RowId) -> r.Run:
    """Queue a paused run again, or take back a pause."""
    return _command("resume", services, run_id)


@router.post("/{run_id}/stop")
@with_reserve
def stop_run(services: ServicesDep, run_id: RowId) -> r.Run:
    """Stop at the next step; a run that nobody holds at once."""
    return _command("stop", services, run_id)


@router.post("/{run_id}/retry")
def retry_run(services: ServicesDep, run_id: RowId, query: Annotated[RetryQuery, Query()]) -> r.Run:
    """Queue a failed or stopped run again; it goes on from its newest checkpoint."""
    with services.changing(run_id) as tx:
        commands.command(tx, run_id, "retry", services.clock.stamp())
        if query.with_changed_rewards:
            reward_texts.release(tx, run_id)
        return store.get(tx, run_id)
