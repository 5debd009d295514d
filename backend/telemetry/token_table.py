"""The tokens of completions as columns of a table: a step's file is read in parts, once, as its groups come."""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import BufferReader
from sqlalchemy import Connection, select

from backend.contract.groups import Group, TokenTrace
from backend.storage.tables import trace_file
from backend.telemetry.traces import BROKEN, FOLDER, LISTS

log = logging.getLogger(__name__)

AT_ONCE = 256  # completions
_TEXTS = "token_texts"
_OF_FLAGS = ("trained", "clipped")
TYPES: Mapping[str, pa.DataType] = {
    "token_ids": pa.int32(),
    _TEXTS: pa.string(),
    **{
        name: pa.bool_() if name in _OF_FLAGS else pa.float32()
        for name in TokenTrace.model_fields
        if name in LISTS - {"token_ids"}
    },
}
"""Of each column the type of a token's value."""
COLUMNS = {name: f"token_{name}" if not name.startswith("token_") else name for name in TYPES}
"""The columns' names, apart from those of whole completions."""
FIELDS = [(COLUMNS[name], pa.list_(kind)) for name, kind in TYPES.items()]

Place = tuple[int, int]  # attempt and step
Values = Mapping[str, "pa.Array | None"]


class _File(NamedTuple):
    path: str
    sha256: str


def files(tx: Connection, groups: Sequence[Group]) -> dict[Place, _File]:
    """The trace files of the steps that these groups of one history are of, by attempt and step."""
    runs, steps = {group.run_id for group in groups}, {(group.run_id, group.step) for group in groups}
    place = trace_file.c.run_id, trace_file.c.attempt, trace_file.c.step
    query = select(*place, trace_file.c.path, trace_file.c.sha256).where(
        trace_file.c.run_id.in_(runs), trace_file.c.step.in_({step for _, step in steps})
    )
    rows = tx.execute(query)
    return {(row.attempt, row.step): _File(row.path, row.sha256) for row in rows if (row.run_id, row.step) in steps}


class TokenTable:
    """Of one run. It holds at most the rows of one step's file, and of a file in the order of its groups a part of it."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER
        self._file: _File | None = None
        self._rest: Iterator[tuple[Place, Values]] = iter(())
        self._found: dict[Place, Values] = {}  # read before they were asked for

    def of(self, file: _File | None, pairs: Sequence[Place]) -> list[Values]:
        """The values of completions by (group, completion) index; nothing of those whose tokens were not kept, or are lost."""
        if file != self._file:
            self._file, self._found = file, {}
            self._rest = iter(()) if file is None else self._rows(file)
        return [self._one(pair) for pair in pairs]

    def _one(self, pair: Place) -> Values:
        if pair in self._found:
            return self._found.pop(pair)
        for read, values in self._rest:
            if read == pair:
                return values
            self._found[read] = values
        return {}

    def _rows(self, file: _File) -> Iterator[tuple[Place, Values]]:
        try:
            data = (self._folder / file.path).read_bytes()
            if hashlib.sha256(data).hexdigest() != file.sha256:
                raise ValueError("its hash is not the stored one")
            opened = pq.ParquetFile(BufferReader(data))
            for batch in opened.iter_batches(AT_ONCE):
                groups, completions = (batch.column(name).to_pylist() for name in ("group", "completion"))
                for row, pair in enumerate(zip(groups, completions, strict=True)):
                    yield pair, _values(batch, row)
        except BROKEN as error:
            log.warning("the tokens in %s are missing from an export: %s", file.path, error)


def _values(batch: pa.RecordBatch, row: int) -> Values:
    """What one completion has of each column; a list of another length than its tokens is left out."""
    here = set(batch.schema.names)
    found = {name: batch.column(name)[row].values for name in TYPES if name in here}
    count = len(found["token_ids"])
    offsets, text = batch.column("text_offsets")[row].as_py(), batch.column("text")[row].as_py()
    found[_TEXTS] = pa.array(
        [text[a:b].decode("utf-8", "replace").replace("\0", "\ufffd") for a, b in pairwise(offsets)]
    )
    return {
        name: values.cast(TYPES[name]) for name, values in found.items() if values is not None and len(values) == count
    }


def arrays(rows: Sequence[Values]) -> list[pa.Array]:
    """The columns of these completions, in the order of FIELDS."""
    return [_lists([row.get(name) for row in rows], kind) for name, kind in TYPES.items()]


def _lists(values: Sequence["pa.Array | None"], kind: pa.DataType) -> pa.Array:
    offsets = list(accumulate((0 if one is None else len(one) for one in values), initial=0))
    known = [one for one in values if one is not None]
    flat = pa.concat_arrays(known) if known else pa.array([], kind)
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), flat, mask=pa.array([one is None for one in values], pa.bool_())
    )
