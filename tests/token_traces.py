"""Token traces with a bit of everything: clipped ratios, a surprise, a value that is missing."""

import math
import random
from collections.abc import Sequence

import numpy as np

from backend.contract.protocol import TraceFile
from backend.contract.trace_file import lists, packed

CLIPPED_ABOVE = 1.2


def trace_of_tokens(completions: Sequence[Sequence[str]], *, group: int = 0) -> TraceFile:
    """The trace of a group's first completions, given as their tokens. Every number follows from the position."""
    pieces = [[token.encode() for token in tokens] for tokens in completions]
    rows = [_row(each) for each in pieces]
    measured = {
        name: lists([np.array(row[name], float) for row in rows], np.bool_ if name == "clipped" else np.float32)
        for name in rows[0]
    }
    ids = [[100 + len(piece) * 7 + place % 50 for place, piece in enumerate(each)] for each in pieces]
    return packed([(group, place) for place in range(len(rows))], ids, pieces, measured)


def _row(tokens: Sequence[bytes]) -> dict[str, list[float | None]]:
    numbers, count = random.Random(len(tokens)), len(tokens)
    entropy = [abs(math.sin(place / 40)) * numbers.uniform(0.2, 1) for place in range(count)]
    old = [-0.6 - value * numbers.expovariate(1) for value in entropy]
    moved = [numbers.gauss(0, 0.08) for _ in tokens]
    ratio = [math.exp(move) for move in moved]
    return {
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
