"""One completion's tokens out of a trace file."""

import hashlib
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyarrow import BufferReader
from pydantic import ValidationError
from sqlalchemy import RowMapping

from backend.contract.groups import TokenTrace
from backend.errors import Conflict, NotFound
from backend.telemetry.traces import BROKEN, FOLDER

LISTS = (
    "token_ids",
    "sampling_logprob",
    "old_logprob",
    "logprob",
    "logprob_after",
    "reference_logprob",
    "entropy",
    "ratio",
    "clipped",
    "kl",
    "advantage",
    "value",
    "returns",
)


def read(home: Path, completion_id: int, place: RowMapping) -> TokenTrace:
    """The trace. Raises NotFound where the file is gone and Conflict where it is not the one that was stored."""
    path = home / FOLDER / place["path"]
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"The trace file of completion {completion_id} is gone from the data directory.") from None
    if hashlib.sha256(data).hexdigest() != place["sha256"]:
        raise Conflict(f"The trace file of completion {completion_id} is damaged: its hash is not the stored one.")
    try:
        return _trace(completion_id, _row(data, place["group"], place["completion"]))
    except (*BROKEN, ValidationError):
        raise Conflict(f"The trace of completion {completion_id} does not hold what the contract asks for.") from None


def _row(data: bytes, group: int, completion: int) -> dict[str, Any]:
    chosen = [("group", "=", group), ("completion", "=", completion)]
    row: dict[str, Any] = pq.read_table(BufferReader(data), filters=chosen).to_pylist()[0]
    return row


def _trace(completion_id: int, row: dict[str, Any]) -> TokenTrace:
    lists = {name: [_finite(value) for value in row[name]] for name in LISTS if row.get(name) is not None}
    texts = _texts(row["text"], row["text_offsets"])
    if any(len(values) != len(texts) for values in lists.values()):
        raise ValueError("lists of different lengths")
    return TokenTrace.model_validate({"completion_id": completion_id, "texts": texts, **lists})


def _texts(text: bytes, offsets: list[int]) -> list[str]:
    """The tokens' texts; one that ends inside a character shows the replacement sign."""
    parts = (text[start:end] for start, end in pairwise(offsets))
    return [part.decode("utf-8", "replace").replace("\0", "\ufffd") for part in parts]


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
