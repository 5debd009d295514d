"""Token traces: the per-token values of a step, as one compressed Parquet file."""

import base64
import hashlib
import io
import math
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from backend.contract.protocol import TraceFile
from backend.contract.training import Telemetry
from worker.policy.policy import Policy
from worker.rollout.rollout import Rollout
from worker.token_record import TokenRecord

MAX_BYTES = 36 * 2**20
"""Of a file; the contract's limit of 48 MiB holds for its base64 text."""

_VALUES = (
    "old_logprob",
    "logprob",
    "logprob_after",
    "reference_logprob",
    "entropy",
    "ratio",
    "kl",
    "advantage",
    "value",
    "returns",
)


class TraceTooLarge(Exception):
    """More than one report can carry."""


def traced_rows(telemetry: Telemetry, step: int, rewards_P_G: Tensor) -> list[int]:
    """Which completions of a step are kept token by token: all, none, or the best and the worst of each group."""
    groups, size = rewards_P_G.shape
    kept = telemetry.token_traces
    if kept == "none" or (kept == "periodic" and step % telemetry.trace_every):
        return []
    if kept != "extremes":
        return list(range(groups * size))
    best_P = rewards_P_G.nan_to_num(nan=-math.inf).argmax(-1).tolist()
    worst_P = rewards_P_G.nan_to_num(nan=math.inf).argmin(-1).tolist()
    return sorted({p * size + g for p in range(groups) for g in (best_P[p], worst_P[p])})


def trace_file(rows: list[int], policy: Policy, rollout: Rollout, tokens: TokenRecord) -> TraceFile | None:
    """The file for these completions; None for no rows. Raises TraceTooLarge above MAX_BYTES."""
    if not rows:
        return None
    table = pa.table(_columns(rows, policy, rollout, tokens))
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    data = buffer.getvalue()
    if len(data) > MAX_BYTES:
        raise TraceTooLarge(
            f"the token traces of {len(rows):,} completions are {len(data) / 2**20:.0f} MiB, above {MAX_BYTES / 2**20:.0f}"
        )
    return TraceFile(
        sha256=hashlib.sha256(data).hexdigest(), data=base64.b64encode(data).decode("ascii"), rows=len(rows)
    )


def _columns(rows: list[int], policy: Policy, rollout: Rollout, tokens: TokenRecord) -> dict[str, pa.Array]:
    completions = [rollout.completions_R[row] for row in rows]
    pieces = [token_texts(policy, completion.ids) for completion in completions]
    columns = {
        "group": pa.array([row // rollout.group_size for row in rows], pa.int32()),
        "completion": pa.array([row % rollout.group_size for row in rows], pa.int32()),
        "token_ids": pa.array([completion.ids for completion in completions], pa.list_(pa.int32())),
        "text": pa.array([b"".join(parts) for parts in pieces], pa.binary()),
        "text_offsets": pa.array([_offsets(parts) for parts in pieces], pa.list_(pa.int32())),
        "sampling_logprob": pa.array([completion.logprobs for completion in completions], pa.list_(pa.float32())),
        "clipped": pa.array(_lists(tokens["clipped"], rows, tokens.mask), pa.list_(pa.bool_())),
    }
    for name in _VALUES:
        values = tokens.get(name)
        if values is not None:
            columns[name] = pa.array(_lists(values, rows, tokens.mask), pa.list_(pa.float32()))
    return columns


def token_texts(policy: Policy, ids: list[int]) -> list[bytes]:
    """The UTF-8 bytes that each token adds to the text, ending tokens included.

    A character that several tokens make up together belongs to the last of them.
    """
    tokenizer = policy.tokenizer
    alone = [str(text) for text in tokenizer.batch_decode([[token] for token in ids])]
    if "".join(alone) == str(tokenizer.decode(ids)):
        return [text.encode(errors="replace") for text in alone]
    return list(_by_prefix(policy, ids))


def _by_prefix(policy: Policy, ids: list[int]) -> Iterable[bytes]:
    shown = ""
    for end in range(1, len(ids) + 1):
        text = str(policy.tokenizer.decode(ids[:end]))
        if text.endswith("\ufffd") and end < len(ids):  # the first bytes of a character still to be completed
            yield b""
        else:
            yield text[len(shown) :].encode(errors="replace")
            shown = text


def _offsets(parts: list[bytes]) -> list[int]:
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return offsets


def _lists(values_R_T: Tensor, rows: list[int], mask_R_T: Tensor) -> list[list[float]]:
    return [values_R_T[row][mask_R_T[row]].tolist() for row in rows]
