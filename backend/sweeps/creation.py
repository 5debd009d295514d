"""From a request to a sweep: its runs are created like any other, all or none."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import Connection

from backend.contract import records as r
from backend.errors import Conflict, Invalid
from backend.field_errors import FieldError
from backend.lifecycle import creation
from backend.storage.database import to_json
from backend.sweeps import store


def create(tx: Connection, body: r.SweepCreate, key: str | None, at: datetime) -> int:
    """The sweep's number. Raises what the creation of one of its runs raises, with its index, and Conflict for the key."""
    digest = hashlib.sha256(to_json(body.model_dump(mode="json")).encode()).hexdigest()
    if key is not None and (earlier := store.by_idempotency_key(tx, key)) is not None:
        if earlier["idempotency_hash"] != digest:
            raise Conflict(f"The Idempotency-Key was used for sweep {earlier['id']} with another body; use a new key.")
        return int(earlier["id"])
    sweep_id = store.create(tx, body.name, len(body.runs), key, digest if key is not None else None, at)
    for index, run in enumerate(body.runs):
        with naming(index):
            creation.create(tx, run, None, at, sweep_id=sweep_id)
    return sweep_id


@contextmanager
def naming(index: int) -> Iterator[None]:
    """Says of a refused configuration which run's it is: `runs.3.config.model.source`."""
    try:
        yield
    except Invalid as refusal:
        path = f"runs.{index}.config"
        raise Invalid(*(FieldError(f"{path}.{one.field}", one.message) for one in refusal.errors)) from None
