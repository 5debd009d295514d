"""Token traces as a file: what `TraceFile` carries."""

import base64
import hashlib
import io
from collections.abc import Mapping, Sequence
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq
from numpy import integer
from numpy.typing import NDArray

from backend.contract.protocol import TraceFile, TraceTooLarge

MAX_BYTES = 36 * 2**20
"""Of a file; the contract's limit of 48 MiB holds for its base64 text."""


def packed(
    places: Sequence[tuple[int, int]],
    ids: Sequence[Sequence[int] | NDArray[integer]],
    pieces: Sequence[Sequence[bytes]],
    measured: Mapping[str, pa.Array],
) -> TraceFile:
    """The file of these completions, by group and index: their tokens, what each adds to the text, and the values by name.

    Raises TraceTooLarge above MAX_BYTES.
    """
    columns = {
        "group": pa.array([group for group, _ in places], pa.int32()),
        "completion": pa.array([completion for _, completion in places], pa.int32()),
        "token_ids": pa.array(ids, pa.list_(pa.int32())),
        "text": pa.array([b"".join(parts) for parts in pieces], pa.binary()),
        "text_offsets": pa.array(
            [list(accumulate(map(len, parts), initial=0)) for parts in pieces], pa.list_(pa.int32())
        ),
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
