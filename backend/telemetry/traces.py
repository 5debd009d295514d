"""Token traces: one Parquet file per step, beside the database, read one completion at a time."""

import base64
import binascii
import hashlib
import math
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyarrow import ArrowException, BufferReader
from pydantic import ValidationError
from sqlalchemy import Connection, RowMapping, and_, insert, select

from backend.contract import protocol as p
from backend.contract.groups import TokenTrace
from backend.errors import Conflict, Invalid, NotFound, Unavailable
from backend.field_errors import FieldError
from backend.storage.tables import completion, prompt_group, trace_file

FOLDER = "traces"
LISTS = TokenTrace.model_fields.keys() - {"completion_id", "texts"}  # columns with a value for each token
MOST_FOOTER = 2**20  # bytes of a Parquet file's description of itself
MOST_COLUMNS = 32
MOST_VALUES = 2**24  # of one column: the tokens of a step
MOST_BYTES = 2**29  # before they are compressed
# what a file with other columns or types than promised makes pyarrow and Python raise
BROKEN = (ArrowException, KeyError, IndexError, TypeError, ValueError, OSError)


@dataclass(frozen=True)
class StoredTrace:
    """A trace file that lies in its place, and the (group, completion) indices whose tokens it has."""

    file: Path
    path: str  # of the file, below the folder of all traces
    sha256: str
    size_bytes: int
    completions: frozenset[tuple[int, int]]


def keep(home: Path, run_id: int, sent: p.Report) -> StoredTrace | None:
    """Put a report's trace file, if it has one, in its place, whole, before a row names it. Raises Invalid."""
    if sent.trace is None:
        return None
    if not sent.groups:
        raise Invalid(FieldError("trace", "belongs to the groups of a step, and the report has none"))
    try:
        data = base64.b64decode(sent.trace.data, validate=True)
    except (binascii.Error, ValueError):
        raise Invalid(FieldError("trace.data", "is not base64")) from None
    if hashlib.sha256(data).hexdigest() != sent.trace.sha256:
        raise Invalid(FieldError("trace.sha256", "does not belong to the data: it was damaged on its way"))
    completions = _indices(data, sent)
    folder = home / FOLDER / str(run_id)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{sent.attempt}-{sent.step}-{sent.trace.sha256[:16]}.parquet"
    _write(folder / name, data)
    return StoredTrace(folder / name, f"{run_id}/{name}", sent.trace.sha256, len(data), completions)


def _write(path: Path, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".partial", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise


def _indices(data: bytes, sent: p.Report) -> frozenset[tuple[int, int]]:
    """Which completions the file has. What it says of its own size is compared with the report before anything is read."""
    try:
        if int.from_bytes(data[-8:-4], "little") > MOST_FOOTER:
            raise Invalid(FieldError("trace.data", f"describes itself in more than {MOST_FOOTER:,} bytes"))
        file = pq.ParquetFile(BufferReader(data))
        _require_size(file.metadata, sent)
        table = file.read(columns=["group", "completion"], use_threads=False)  # two small columns
        pairs = zip(table["group"].to_pylist(), table["completion"].to_pylist(), strict=True)
        return frozenset((int(group), int(one)) for group, one in pairs)
    except BROKEN:
        raise Invalid(FieldError("trace.data", "is not a Parquet file with the columns group and completion")) from None


def _require_size(metadata: pq.FileMetaData, sent: p.Report) -> None:
    """A file of equal values takes nearly no bytes for each of them, and some hundred kilobytes would fill the memory."""
    completions = [one for group in sent.groups for one in group.completions]
    stated = sent.trace.rows if sent.trace else 0
    if metadata.num_rows != stated or stated > len(completions):
        has = f"the file has {metadata.num_rows:,} rows and the report {len(completions):,} completions"
        raise Invalid(FieldError("trace.rows", f"is {stated:,}; {has}"))
    if metadata.num_columns > MOST_COLUMNS:
        message = f"has {metadata.num_columns:,} columns; the contract names fewer than {MOST_COLUMNS}"
        raise Invalid(FieldError("trace.data", message))
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    most = min(MOST_VALUES, 2 * sum(one.token_count for one in completions) + 16 * len(completions))
    values = [sum(group.column(place).num_values for group in groups) for place in range(metadata.num_columns)]
    size = sum(group.total_byte_size for group in groups)
    if max(values, default=0) > most or size > MOST_BYTES:
        message = f"has {max(values):,} values in a column and {size:,} bytes; the report's tokens need at most {most:,} values"
        raise Invalid(FieldError("trace.data", message))


def record(tx: Connection, run_id: int, attempt: int, of_steps: Sequence[tuple[int, StoredTrace]]) -> None:
    """The rows of trace files. Raises Unavailable if a file is gone: another request brought the same, and was refused."""
    if not all(trace.file.exists() for _, trace in of_steps):
        raise Unavailable("A trace file was taken away meanwhile. Send the report again.")
    place = {"run_id": run_id, "attempt": attempt}
    rows = [
        place
        | {"step": step, "path": trace.path, "sha256": trace.sha256}
        | {"size_bytes": trace.size_bytes, "rows": len(trace.completions)}
        for step, trace in of_steps
    ]
    if rows:
        tx.execute(insert(trace_file), rows)


def discard(tx: Connection, trace: StoredTrace) -> None:
    """Delete a trace file whose report was refused, unless an earlier report brought the same. In a writing transaction: none that
    stores the same report is between its look at the file and its commit.
    """
    if tx.execute(select(trace_file.c.step).where(trace_file.c.path == trace.path)).first() is None:
        trace.file.unlink(missing_ok=True)


def locate(tx: Connection, completion_id: int) -> RowMapping:
    """The trace file of a completion, with its indices there. Raises NotFound if no tokens were kept."""
    of_step = and_(*(trace_file.c[name] == prompt_group.c[name] for name in ("run_id", "attempt", "step")))
    place = prompt_group.c.index.label("group"), completion.c.index.label("completion")
    query = (
        select(trace_file.c.path, trace_file.c.sha256, *place)
        .select_from(completion)
        .join(prompt_group, prompt_group.c.id == completion.c.group_id)
        .join(trace_file, of_step)
        .where(completion.c.id == completion_id, completion.c.has_trace)
    )
    row = tx.execute(query).mappings().one_or_none()
    if row is None:
        raise NotFound(f"No tokens were kept of completion {completion_id}; the run's telemetry says which are.")
    return row


def clear(home: Path) -> None:
    """Delete files that a backend was writing when it was killed."""
    for partial in (home / FOLDER).glob("*/tmp*.partial"):
        partial.unlink(missing_ok=True)


def remove(home: Path, run_id: int) -> None:
    """Delete a run's trace files."""
    shutil.rmtree(home / FOLDER / str(run_id), ignore_errors=True)


def read(home: Path, completion_id: int, place: RowMapping) -> TokenTrace:
    """The trace. Raises NotFound if the file is gone and Conflict if it is not the one that was stored."""
    path = home / FOLDER / place["path"]
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"The trace file of completion {completion_id} is gone from the data directory.") from None
    if hashlib.sha256(data).hexdigest() != place["sha256"]:
        raise Conflict(f"The trace file of completion {completion_id} is damaged: its hash is not the stored one.")
    try:
        chosen = [("group", "=", place["group"]), ("completion", "=", place["completion"])]
        row: dict[str, Any] = pq.read_table(BufferReader(data), filters=chosen).to_pylist()[0]
        # a token that ends inside a character shows the replacement sign
        parts = (row["text"][start:end] for start, end in pairwise(row["text_offsets"]))
        texts = [part.decode("utf-8", "replace").replace("\0", "\ufffd") for part in parts]
        lists = {
            name: [None if isinstance(value, float) and not math.isfinite(value) else value for value in row[name]]
            for name in LISTS
            if row.get(name) is not None
        }
        if any(len(values) != len(texts) for values in lists.values()):
            raise ValueError("lists of different lengths")
        return TokenTrace.model_validate({"completion_id": completion_id, "texts": texts, **lists})
    except (*BROKEN, ValidationError):
        raise Conflict(f"The trace of completion {completion_id} does not hold what the contract asks for.") from None
