"""Token traces as a file: what `TraceFile` carries."""

import base64
import hashlib
import io
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from backend.contract.protocol import TraceFile, TraceTooLarge

MAX_BYTES = 36 * 2**20
"""Of a file; the contract's limit of 48 MiB holds for its base64 text."""


def packed(columns: Mapping[str, pa.Array], rows: int) -> TraceFile:
    """The file of these columns, which TraceFile names. Raises TraceTooLarge above MAX_BYTES."""
    buffer = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), buffer, compression="zstd")
    data = buffer.getvalue()
    if len(data) > MAX_BYTES:
        raise TraceTooLarge(
            f"the token traces of {rows:,} completions are {len(data) / 2**20:.0f} MiB, above {MAX_BYTES / 2**20:.0f}"
        )
    return TraceFile(sha256=hashlib.sha256(data).hexdigest(), data=base64.b64encode(data).decode("ascii"), rows=rows)
