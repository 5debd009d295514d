"""Token traces: one Parquet file per step, beside the database, read one completion at a time."""

import base64
import binascii
import hashlib
import os
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from pyarrow import ArrowException, BufferReader

from backend.contract import protocol as p
from backend.errors import Invalid
from backend.field_errors import FieldError
from backend.telemetry.reports import StoredTrace

FOLDER = "traces"


def keep(home: Path, run_id: int, sent: p.Report) -> StoredTrace | None:
    """Put a report's trace file, if it has one, in its place: whole, before any row speaks of it. Raises Invalid for a broken one."""
    if sent.trace is None:
        return None
    if not sent.groups:
        raise Invalid(FieldError("trace", "belongs to the groups of a step, and the report has none"))
    data = _decoded(sent.trace)
    completions = _indices(data)
    folder = home / FOLDER / str(run_id)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{sent.attempt}-{sent.step}-{sent.trace.sha256[:16]}.parquet"
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".partial", delete=False) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, folder / name)
    return StoredTrace(f"{run_id}/{name}", sent.trace.sha256, len(data), completions)


def _decoded(trace: p.TraceFile) -> bytes:
    try:
        data = base64.b64decode(trace.data, validate=True)
    except (binascii.Error, ValueError):
        raise Invalid(FieldError("trace.data", "is no base64")) from None
    if hashlib.sha256(data).hexdigest() != trace.sha256:
        raise Invalid(FieldError("trace.sha256", "does not belong to the data: it was damaged on its way"))
    return data


def _indices(data: bytes) -> frozenset[tuple[int, int]]:
    try:
        table = pq.read_table(BufferReader(data), columns=["group", "completion"])
        pairs = zip(table["group"].to_pylist(), table["completion"].to_pylist(), strict=True)
        return frozenset((int(group), int(completion)) for group, completion in pairs)
    except (ArrowException, KeyError, TypeError, OSError, ValueError):
        raise Invalid(FieldError("trace.data", "is no Parquet file with the columns group and completion")) from None
