"""Trace files of few bytes that would be very many in memory: runs of equal values take nearly none."""

import base64
import hashlib
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq

from backend.contract.protocol import TraceFile


def trace_of(table: pa.Table, rows: int, *, row_group_size: int | None = None) -> TraceFile:
    """The table as a trace that claims the given number of rows."""
    file = BytesIO()
    pq.write_table(table, file, compression="zstd", row_group_size=row_group_size or max(1, table.num_rows))
    data = file.getvalue()
    return TraceFile(sha256=hashlib.sha256(data).hexdigest(), data=base64.b64encode(data).decode(), rows=rows)


def many_rows(count: int, stated: int = 1) -> TraceFile:
    """One completion's row, again and again."""
    zeros = pa.chunked_array([pa.array([0] * 1_000_000, pa.int32())] * (count // 1_000_000))
    return trace_of(pa.table({"group": zeros, "completion": zeros}), stated)


def long_lists(length: int) -> TraceFile:
    """One row, whose lists have very many equal entries."""
    values = pa.ListArray.from_arrays(
        pa.array([0, length], pa.int32()), pa.array([1], pa.int32()).take(pa.array([0] * length))
    )
    return trace_of(
        pa.table({"group": pa.array([0], pa.int32()), "completion": pa.array([0], pa.int32()), "token_ids": values}), 1
    )


def many_columns(count: int) -> TraceFile:
    """One row of very many columns."""
    names = {"group": [0], "completion": [0]} | {f"column {number}": [0] for number in range(count)}
    return trace_of(pa.table({name: pa.array(value, pa.int32()) for name, value in names.items()}), 1)
