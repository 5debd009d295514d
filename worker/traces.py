"""Token traces: the per-token values of a step, as one compressed Parquet file."""

import math

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from backend.contract.groups import TokenTrace
from backend.contract.protocol import TraceFile
from backend.contract.token_texts import TokenTexts
from backend.contract.trace_file import packed
from backend.contract.training import Telemetry
from worker.rollout.engine import Rollout
from worker.token_record import TokenRecord


def traced_rows(telemetry: Telemetry, step: int, rewards_P_G: NDArray[np.float64]) -> list[int]:
    """Which completions of a step are kept token by token: all, none, or the best and the worst of each group."""
    groups, size = rewards_P_G.shape
    kept = telemetry.token_traces
    if kept == "none" or (kept == "periodic" and step % telemetry.trace_every):
        return []
    if kept != "extremes":
        return list(range(groups * size))
    best_P = np.nan_to_num(rewards_P_G, nan=-math.inf).argmax(-1).tolist()
    worst_P = np.nan_to_num(rewards_P_G, nan=math.inf).argmin(-1).tolist()
    return sorted({p * size + g for p in range(groups) for g in (best_P[p], worst_P[p])})


def trace_file(rows: list[int], texts: TokenTexts, rollout: Rollout, tokens: TokenRecord) -> TraceFile | None:
    """The file for these completions; None for no rows. Raises TraceTooLarge above MAX_BYTES.

    Of a completion that was left out of the pass it has the tokens, and null for what the pass would have measured.
    """
    if not rows:
        return None
    completions = [rollout.completions_R[row] for row in rows]
    measured = {name: _lists(name, rows, tokens) for name in TokenTrace.model_fields if tokens.get(name) is not None}
    sampled = pa.array([completion.logprobs for completion in completions], pa.list_(pa.float32()))
    return packed(
        [divmod(row, rollout.group_size) for row in rows],
        [completion.ids for completion in completions],
        [texts.of(completion.ids) for completion in completions],
        {"sampling_logprob": sampled} | measured,
    )


def _lists(name: str, rows: list[int], tokens: TokenRecord) -> pa.Array:
    """One list for each row, as long as its tokens; null for a row that has no values."""
    known_r = tokens.known(name)[rows]
    lengths_r = np.where(known_r, tokens.mask.numpy()[rows].sum(-1), 0)
    offsets = np.concatenate([[0], lengths_r.cumsum()]).astype(np.int32)
    flat = pa.array(tokens.flat(name, rows))
    if not pa.types.is_boolean(flat.type):
        flat = flat.cast(pa.float32())
    return pa.ListArray.from_arrays(offsets, flat, mask=pa.array(~known_r))
