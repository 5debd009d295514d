"""Routes of runs."""

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Path, Query, Response

from backend.contract import records as r
from backend.paging import Cursor, Limit, position
from backend.runs import commands, creation, store
from backend.services import ServicesDep

router = APIRouter(prefix="/api/v1/runs", tags=["runs"])

RunId = Annotated[int, Path(ge=1, le=2**63 - 1)]
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
Word = Annotated[str | None, Query(max_length=200)]


@router.post("", status_code=201)
def create_run(services: ServicesDep, body: r.RunCreate, idempotency_key: Key = None) -> r.Run:
    """Store and queue a run."""
    with services.database.write() as tx:
        run_id, _ = creation.create(tx, body, idempotency_key, services.clock.stamp())
        return store.get(tx, run_id)


@router.get("")
def list_runs(
    services: ServicesDep,
    status: r.Status | None = None,
    kind: Literal["grpo", "sample"] | None = None,
    tag: Word = None,
    search: Word = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> r.Page[r.Run]:
    """Runs, newest first."""
    with services.database.read() as tx:
        before = position(cursor)
        return store.page(tx, status=status, kind=kind, tag=tag, search=search, limit=limit, before=before)


@router.get("/{run_id}")
def get_run(services: ServicesDep, run_id: RunId) -> r.Run:
    """One run."""
    with services.database.read() as tx:
        return store.get(tx, run_id)


@router.patch("/{run_id}")
def update_run(services: ServicesDep, run_id: RunId, body: r.RunUpdate) -> r.Run:
    """Change name, tags, notes or priority."""
    with services.changing(run_id) as tx:
        store.change(tx, run_id, body)
        return store.get(tx, run_id)


@router.delete("/{run_id}", status_code=204)
def delete_run(services: ServicesDep, run_id: RunId) -> Response:
    """Delete a run that is not running, with all its records."""
    with services.changing(run_id) as tx:
        store.remove(tx, run_id)
    return Response(status_code=204)


@router.post("/{run_id}/clone", status_code=201)
def clone_run(services: ServicesDep, run_id: RunId, body: r.RunClone) -> r.Run:
    """Queue a copy with some fields changed."""
    with services.database.write() as tx:
        original = store.row_of(tx, run_id)
        copy = r.RunCreate(
            name=body.name or creation.copy_name(original["name"]),
            config=creation.overridden(original["config"], body.overrides),
            tags=original["tags"],
            priority=original["priority"],
            parent_id=run_id,
        )
        created, _ = creation.create(tx, copy, None, services.clock.stamp())
        return store.get(tx, created)


@router.post("/{run_id}/{verb}")
def command_run(services: ServicesDep, run_id: RunId, verb: Literal["pause", "resume", "stop", "retry"]) -> r.Run:
    """Pause, resume, stop or retry a run."""
    with services.changing(run_id) as tx:
        commands.command(tx, run_id, verb, services.clock.stamp())
        return store.get(tx, run_id)
