"""From a request to a queued run: the configuration's references are looked up, and the key is honoured."""

import copy
import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection

from backend.checkpoints import store as checkpoints
from backend.contract import records as r
from backend.contract.base import Json
from backend.contract.config import RUN_CONFIG, RunConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.model import checkpoint_of
from backend.contract.sample import SampleConfig
from backend.errors import Conflict, Invalid
from backend.field_errors import FieldError, field_errors
from backend.runs import store
from backend.runs.needs import needs_of
from backend.storage.database import to_json
from backend.uploads import store as uploads
from backend.uploads.columns import upload_of

MOST_CONFIG = 2**19  # characters: 16 typed prompts of full length and the form that they were typed for


def create(tx: Connection, body: r.RunCreate, key: str | None, at: datetime, *, sweep_id: int | None = None) -> int:
    """The run's number. Raises Invalid for references to what is not there, Conflict for the key."""
    digest = hashlib.sha256(to_json(body.model_dump(mode="json")).encode()).hexdigest()
    if key is not None and (earlier := store.by_idempotency_key(tx, key)) is not None:
        if earlier["idempotency_hash"] != digest:
            raise Conflict(f"The Idempotency-Key was used for run {earlier['id']} with another body; use a new key.")
        return int(earlier["id"])
    config = body.config
    stored = config.model_dump(mode="json")
    if (size := len(to_json(stored))) > MOST_CONFIG:
        message = f"has {size:,} characters, and every list of runs returns it; at most {MOST_CONFIG:,} are kept"
        raise Invalid(FieldError("config", message))
    source = checkpoint_of(config.model.source)
    new = store.NewRun(
        name=body.name or default_name(config),
        kind=config.kind,
        config=stored,
        needs=needs_of(stored).written(),
        total_steps=1 if isinstance(config, SampleConfig) else config.budget.steps,
        tags=list(dict.fromkeys(body.tags)),
        notes=body.notes,
        priority=body.priority,
        parent_id=body.parent_id,
        source_run_id=source[0] if source else None,
        upload_id=upload_of(config),
        sweep_id=sweep_id,
        store=checkpoints.store_of(tx, stored),
        idempotency_key=key,
        idempotency_hash=digest if key is not None else None,
    )
    if body.parent_id is not None:
        store.require(tx, body.parent_id)
    if new.upload_id is not None:
        uploads.get(tx, new.upload_id)  # deleted since its columns were looked at: 404
    return store.create(tx, new, at)


def default_name(config: RunConfig) -> str:
    """What a run without a name is called."""
    model = config.model.source.rsplit("/", 1)[-1].removeprefix("builtin:")
    what = config.task.kind if isinstance(config, GrpoConfig) else config.kind.replace("_", " ")
    recipe = f"{config.recipe}, " if isinstance(config, GrpoConfig) and config.recipe else ""
    return f"{recipe}{what} on {model}"


def copy_name(name: str) -> str:
    """What a clone without a name is called."""
    suffix = " (copy)"
    return name if name.endswith(suffix) else name[: 200 - len(suffix)] + suffix


def overridden(config: Mapping[str, Json], overrides: Mapping[str, Json]) -> RunConfig:
    """The configuration with the overrides in place, validated anew. Raises Invalid."""
    changed: Any = copy.deepcopy(dict(config))
    for path, value in overrides.items():
        _put(changed, path, value)
    try:
        return RUN_CONFIG.validate_python(changed)
    except ValidationError as error:
        raise Invalid(*field_errors(error.errors(include_url=False), changed)) from None


def _put(config: Any, path: str, value: Json) -> None:
    *parents, last = path.split(".")
    place = config
    for entry in parents:
        place = _child(place, entry, path)
    if isinstance(place, list):
        place[_index(place, last, path)] = value
    elif isinstance(place, dict):
        place[last] = value
    else:
        raise Invalid(FieldError(path, "is not a field of the configuration"))


def _child(place: Any, entry: str, path: str) -> Any:
    if isinstance(place, list):
        return place[_index(place, entry, path)]
    if isinstance(place, dict) and entry in place:
        return place[entry]
    raise Invalid(FieldError(path, "is not a field of the configuration"))


def _index(place: list[Any], entry: str, path: str) -> int:
    if entry.isascii() and entry.isdigit() and len(entry) < 6 and int(entry) < len(place):
        return int(entry)
    raise Invalid(FieldError(path, f"has no entry {entry!r}; the list has {len(place)} entries, counted from 0"))
