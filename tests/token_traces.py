"""Token traces with a bit of everything: clipped ratios, a surprise, a value that is missing."""

import base64
import hashlib
import math
import random
from collections.abc import Sequence
from io import BytesIO
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from backend.contract.protocol import TraceFile

CLIPPED_ABOVE = 1.2


def trace_of_tokens(completions: Sequence[Sequence[str]], *, group: int = 0) -> TraceFile:
    """The trace of a group's first completions, given as their tokens. Every number follows from the position."""
    columns: dict[str, list[object]] = {"group": [group] * len(completions), "completion": [*range(len(completions))]}
    for tokens in completions:
        for name, values in _row(tokens).items():
            columns.setdefault(name, []).append(values)
    kinds = {"group": pa.int32(), "completion": pa.int32(), "text": pa.binary(), "text_offsets": pa.list_(pa.int32())}
    kinds |= {"token_ids": pa.list_(pa.int32()), "clipped": pa.list_(pa.bool_())}
    floats = pa.list_(pa.float32())
    table = pa.table({name: pa.array(values, kinds.get(name, floats)) for name, values in columns.items()})
    file = BytesIO()
    pq.write_table(table, file, compression="zstd")
    data = file.getvalue()
    return TraceFile(
        sha256=hashlib.sha256(data).hexdigest(), data=base64.b64encode(data).decode(), rows=len(completions)
    )


def _row(tokens: Sequence[str]) -> dict[str, object]:
    numbers = random.Random(len(tokens))
    count = len(tokens)
    pieces = [token.encode() for token in tokens]
    entropy = [abs(math.sin(place / 40)) * numbers.uniform(0.2, 1) for place in range(count)]
    old = [-0.6 - value * numbers.expovariate(1) for value in entropy]
    moved = [numbers.gauss(0, 0.08) for _ in tokens]
    ratio = [math.exp(move) for move in moved]
    return {
        "token_ids": [100 + len(piece) * 7 + place % 50 for place, piece in enumerate(pieces)],
        "text": b"".join(pieces),
        "text_offsets": list(accumulate(map(len, pieces), initial=0)),
        "sampling_logprob": [value + numbers.gauss(0, 1e-6) for value in old],
        "old_logprob": old,
        "logprob": [value + move for value, move in zip(old, moved, strict=True)],
        "logprob_after": [value + 2 * move for value, move in zip(old, moved, strict=True)],
        "reference_logprob": [None if place == 1 else value - 0.1 for place, value in enumerate(old)],
        "entropy": entropy,
        "ratio": ratio,
        "clipped": [value > CLIPPED_ABOVE for value in ratio],
        "kl": [None if place == 1 else numbers.expovariate(40) for place in range(count)],
    }
