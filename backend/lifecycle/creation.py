"""From a request to a queued run: the configuration's references are looked up, and the key is honoured."""

import copy
import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection, Table, select

from backend.checkpoints import replays
from backend.checkpoints import store as checkpoints
from backend.contract import records as r
from backend.contract.base import Json, to_json
from backend.contract.config import RUN_CONFIG, LookConfig, RunConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.model import checkpoint_of
from backend.contract.reading import FIRST, NEWEST
from backend.contract.replay import ReplayConfig
from backend.contract.sample import SampleConfig
from backend.contract.stored import REWARDS, get, put
from backend.errors import Conflict, Invalid
from backend.field_errors import FieldError, field_errors
from backend.lifecycle import forks
from backend.runs import store
from backend.runs.needs import needs_of
from backend.storage.tables import run
from backend.uploads import store as uploads
from backend.uploads.columns import upload_of

MOST_CONFIG = 2**19  # characters: 16 typed prompts of full length and the form that they were typed for


def create(tx: Connection, body: r.RunCreate, key: str | None, at: datetime, *, sweep_id: int | None = None) -> int:
    """The run's number. Raises Invalid for references to what is not there, Conflict for the key."""
    keyed = under_key(tx, run, key, body)
    if isinstance(keyed, int):
        return keyed
    parent = None if body.parent_id is None else store.row_of(tx, body.parent_id)
    config = as_read(tx, body.config, parent["config"] if parent is not None and body.fork_at is not None else None)
    stored = config.model_dump(mode="json")
    require_short(stored)
    if isinstance(config, ReplayConfig):
        replays.require_current(tx, config)
    source = checkpoint_of(config.model.source)
    new = body.model_dump(include={"notes", "priority", "parent_id"}) | {
        "name": body.name or default_name(config),
        "kind": config.kind,
        "config": stored,
        "needs": needs_of(stored).written(),
        "total_steps": config.steps if isinstance(config, LookConfig) else config.budget.steps,
        "tags": list(dict.fromkeys(body.tags)),
        "source_run_id": source[0] if source else None,
        "upload_id": upload_of(config),
        "sweep_id": sweep_id,
        "store": checkpoints.store_of(tx, stored),
    }
    if isinstance(config, SampleConfig) and config.rescores is not None:
        _require_sampled(tx, config.rescores, stored)
    if new["upload_id"] is not None:
        uploads.get(tx, new["upload_id"])  # deleted since its columns were looked at: 404
    if body.fork_at is None:
        return store.create(tx, new | keyed, at)
    if parent is None:
        raise Invalid(FieldError("parent_id", "names no run to fork; say which"))
    return forks.create(tx, new | keyed, parent, config, body.fork_at, at)


def as_read(tx: Connection, config: RunConfig, earlier: Mapping[str, Json] | None) -> RunConfig:
    """The configuration with the way in which answers are read: of the `earlier` run, if it goes on from one, else the newest."""
    if isinstance(config, SampleConfig) and config.rescores is not None and store.is_present(tx, config.rescores):
        earlier = store.row_of(tx, config.rescores)["config"]
    written: Json = config.model_dump(mode="json")
    for path in REWARDS:
        if get(written, path) is not None and get(written, f"{path}.reading") is None:
            before = None if earlier is None else get(dict(earlier), path)
            reading = NEWEST if before is None else get(before, "reading") or FIRST
            written = put(written, f"{path}.reading", reading)
    return RUN_CONFIG.validate_python(written)


def require_short(config: Mapping[str, Json]) -> None:
    """Raises Invalid for a configuration that is too large for lists of runs."""
    if (size := len(to_json(config))) > MOST_CONFIG:
        message = f"has {size:,} characters, and every list of runs returns it; at most {MOST_CONFIG:,} are kept"
        raise Invalid(FieldError("config", message))


def _require_sampled(tx: Connection, run_id: int, stored: Mapping[str, Json]) -> None:
    """Raises Invalid unless the run is a finished sample that asked what is to be scored again."""
    earlier = store.get(tx, run_id) if store.is_present(tx, run_id) else None
    if earlier is None or (earlier.kind, earlier.status) != ("sample", "finished"):
        raise Invalid(FieldError("rescores", f"names run {run_id}, which is not a finished sample; sample again"))
    for name in ("prompts", "system_prompt", "prompt_format", "task", "task_prompts", "group_size", "seed"):
        if earlier.config.get(name) != stored[name]:
            message = f"names sample {run_id}, which has another {name}; keep all but the rewards, or sample again"
            raise Invalid(FieldError("rescores", message))


def under_key(tx: Connection, table: Table, key: str | None, body: BaseModel) -> int | dict[str, str | None]:
    """What was created under the key before; if nothing was, the columns that remember it. Raises Conflict for another body."""
    digest = hashlib.sha256(to_json(body.model_dump(mode="json")).encode()).hexdigest()
    query = select(table.c.id, table.c.idempotency_hash).where(table.c.idempotency_key == key)
    earlier = tx.execute(query).one_or_none() if key is not None else None
    if earlier is None:
        return {"idempotency_key": key, "idempotency_hash": digest if key is not None else None}
    if earlier.idempotency_hash != digest:
        raise Conflict(f"The Idempotency-Key was used for {table.name} {earlier.id} with another body; use a new key.")
    return int(earlier.id)


def default_name(config: RunConfig) -> str:
    """What a run without a name is called."""
    if isinstance(config, ReplayConfig):
        return f"step {config.step} of run {config.run}"
    model = config.model.source.rsplit("/", 1)[-1].removeprefix("builtin:")
    what = config.task.kind if isinstance(config, GrpoConfig) else config.kind.replace("_", " ")
    recipe = f"{config.recipe}, " if isinstance(config, GrpoConfig) and config.recipe else ""
    return f"{recipe}{what} on {model}"


def overridden(config: Mapping[str, Json], overrides: Mapping[str, Json]) -> RunConfig:
    """The configuration with the overrides in place, validated anew. Raises Invalid."""
    changed = copy.deepcopy(dict(config))
    for path, value in overrides.items():
        *parents, last = path.split(".")
        place: Any = changed
        for entry in parents:
            place = place[_key(place, entry, path)]
        place[_key(place, last, path, new=True)] = value
    try:
        return RUN_CONFIG.validate_python(changed)
    except ValidationError as error:
        raise Invalid(*field_errors(error.errors(include_url=False), changed)) from None


def _key(place: Any, entry: str, path: str, *, new: bool = False) -> str | int:
    """Where an entry lies in a mapping, which may lack a new one, or in a list. Raises Invalid."""
    if isinstance(place, dict) and (new or entry in place):
        return entry
    if not isinstance(place, list):
        raise Invalid(FieldError(path, "is not a field of the configuration"))
    if entry.isascii() and entry.isdigit() and len(entry) < 6 and int(entry) < len(place):
        return int(entry)
    raise Invalid(FieldError(path, f"has no entry {entry!r}; the list has {len(place)} entries, counted from 0"))
