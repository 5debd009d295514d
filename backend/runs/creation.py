"""From a request to a queued run: the configuration's references are looked up, the key is honoured, clones are validated."""

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
from backend.contract.config import RUN_CONFIG, GrpoConfig, SampleConfig
from backend.contract.model import checkpoint_of
from backend.errors import Conflict, Invalid
from backend.field_errors import FieldError, field_errors
from backend.runs import store
from backend.storage.database import to_json


def create(tx: Connection, body: r.RunCreate, key: str | None, at: datetime) -> tuple[int, bool]:
    """The run's number, and whether it is new. Raises Invalid for references to what is not there, Conflict for the key."""
    digest = hashlib.sha256(to_json(body.model_dump(mode="json")).encode()).hexdigest()
    if key is not None and (earlier := store.by_idempotency_key(tx, key)) is not None:
        if earlier["idempotency_hash"] != digest:
            raise Conflict(f"The Idempotency-Key was used for run {earlier['id']} with another body; use a new key.")
        return earlier["id"], False
    config = body.config
    source = checkpoint_of(config.model.source)
    new = store.NewRun(
        name=body.name or default_name(config),
        kind=config.kind,
        config=config.model_dump(mode="json"),
        total_steps=config.budget.steps if isinstance(config, GrpoConfig) else 1,
        tags=list(dict.fromkeys(body.tags)),
        notes=body.notes,
        priority=body.priority,
        parent_id=body.parent_id,
        source_run_id=source[0] if source else None,
        upload_id=upload_of(config),
        store=_store_of(tx, source),
        idempotency_key=key,
        idempotency_hash=digest if key is not None else None,
    )
    if body.parent_id is not None:
        store.require(tx, body.parent_id)
    return store.create(tx, new, at), True


def default_name(config: GrpoConfig | SampleConfig) -> str:
    """What a run without a name is called."""
    model = config.model.source.rsplit("/", 1)[-1].removeprefix("builtin:")
    what = config.task.kind if isinstance(config, GrpoConfig) else "sample"
    return f"{what} on {model}"


def copy_name(name: str) -> str:
    """What a clone without a name is called."""
    suffix = " (copy)"
    return name if name.endswith(suffix) else name[: 200 - len(suffix)] + suffix


def upload_of(config: GrpoConfig | SampleConfig) -> int | None:
    """The upload that a configuration reads."""
    if isinstance(config, GrpoConfig) and config.task.kind == "dataset" and config.task.source.startswith("upload:"):
        return int(config.task.source.removeprefix("upload:"))
    return None


def _store_of(tx: Connection, source: tuple[int, int] | None) -> str | None:
    """Where the checkpoint lies that the run starts from. Raises Invalid where there is none."""
    if source is None:
        return None
    found = checkpoints.live_at(tx, *source)
    if found is None:
        run_id, step = source
        raise Invalid(FieldError("model.source", f"run {run_id} has no checkpoint at step {step}; choose one it has"))
    return str(found["store"])


def overridden(config: Mapping[str, Json], overrides: Mapping[str, Json]) -> GrpoConfig | SampleConfig:
    """A stored configuration with some fields replaced, by dotted path, validated anew. Raises Invalid."""
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
        raise Invalid(FieldError(path, "is no path into the configuration"))


def _child(place: Any, entry: str, path: str) -> Any:
    if isinstance(place, list):
        return place[_index(place, entry, path)]
    if isinstance(place, dict) and entry in place:
        return place[entry]
    raise Invalid(FieldError(path, "is no path into the configuration"))


def _index(place: list[Any], entry: str, path: str) -> int:
    if entry.isascii() and entry.isdigit() and len(entry) < 6 and int(entry) < len(place):
        return int(entry)
    raise Invalid(FieldError(path, f"has no entry {entry!r}; the list has {len(place)} entries, counted from 0"))
