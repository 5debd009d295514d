"""Token traces as a file: what `TraceFile` carries."""

import base64
import hashlib
import io
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from backend.contract.protocol import TraceFile, TraceTooLarge

MAX_BYTES = 36 * 2**20
"""Of a file; the contract's limit of 48 MiB holds for its base64 text."""
MOST_OFFSET = 2**31 - 1


def column(values: NDArray[Any], known: NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers, or true and false; null where a value is not `known`. From their memory, since `pa.array` would first import pandas."""
    data = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    valid = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, pa.py_buffer(data)])


def lists(parts: Sequence[NDArray[Any] | None], dtype: type[np.generic]) -> pa.Array:
    """A list of each part's values, null for one that is None. NaN is null."""
    known = np.array([part is not None for part in parts], np.bool_)
    there = [np.asarray(part, dtype) for part in parts if part is not None]
    flat = np.concatenate(there) if there else np.empty(0, dtype)
    finite = ~np.isnan(flat) if np.issubdtype(dtype, np.floating) else None
    offsets = _offsets([0 if part is None else len(part) for part in parts])
    return pa.ListArray.from_arrays(offsets, column(flat, finite), mask=None if known.all() else column(~known))


def _offsets(lengths: Sequence[int]) -> pa.Array:
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    if offsets[-1] > MOST_OFFSET:
        raise TraceTooLarge(f"the token traces have {offsets[-1]:,} values or bytes of text, above {MOST_OFFSET:,}")
    return column(offsets.astype(np.int32))


def packed(
    places: Sequence[tuple[int, int]],
    ids: Sequence[Sequence[int] | NDArray[np.integer]],
    pieces: Sequence[Sequence[bytes]],
    measured: Mapping[str, pa.Array],
) -> TraceFile:
    """The file of these completions, by group and index: their tokens, what each adds to the text, and the values by name.

    Raises TraceTooLarge above MAX_BYTES.
    """
    texts = [b"".join(parts) for parts in pieces]
    joined = [_offsets([len(text) for text in texts]).buffers()[1], pa.py_buffer(b"".join(texts))]
    group, completion = np.array(places, np.int32).reshape(-1, 2).T
    columns = {
        "group": column(group),
        "completion": column(completion),
        "token_ids": lists([np.asarray(each) for each in ids], np.int32),
        "text": pa.Array.from_buffers(pa.binary(), len(texts), [None, *joined]),
        "text_offsets": lists([np.array([0, *accumulate(map(len, parts))]) for parts in pieces], np.int32),
    }
    buffer = io.BytesIO()
    # hardly two values are the same: dictionaries of them take longer and are larger
    pq.write_table(pa.table(columns | dict(measured)), buffer, compression="zstd", use_dictionary=False)
    data = buffer.getvalue()
    if len(data) > MAX_BYTES:
        raise TraceTooLarge(
            f"the token traces of {len(places):,} completions are {len(data) / 2**20:.0f} MiB, above {MAX_BYTES / 2**20:.0f}"
        )
    return TraceFile(
        sha256=hashlib.sha256(data).hexdigest(), data=base64.b64encode(data).decode("ascii"), rows=len(places)
    )
