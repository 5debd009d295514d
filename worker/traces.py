"""Token traces: the per-token values of a step, as one compressed Parquet file, and what each token adds to the text."""

import base64
import hashlib
import io
import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from backend.contract.groups import TokenTrace
from backend.contract.protocol import TraceFile
from backend.contract.training import Telemetry
from worker.rollout.engine import Rollout
from worker.token_record import TokenRecord

MAX_BYTES = 36 * 2**20
"""Of a file; the contract's limit of 48 MiB holds for its base64 text."""

_INCOMPLETE = "\ufffd"


class TokenTexts:
    """Tells the texts of tokens. Its tokenizer is a copy: it is asked in one thread while another one samples."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = deepcopy(tokenizer)
        self._alone: dict[int, str] = {}  # at most one for each token of the vocabulary

    def of(self, ids: Sequence[int]) -> list[bytes]:
        """The UTF-8 bytes that each token adds to the text, ending tokens included.

        A character that several tokens make up together belongs to the last of them.
        """
        whole = self._decode(ids)
        for token in ids:
            if token not in self._alone:
                self._alone[token] = self._decode([token])
        texts = [self._alone[token] for token in ids]
        if "".join(texts) != whole:
            texts = list(self._completed(ids, texts))
        if "".join(texts) != whole:
            texts = list(self._by_prefix(ids))
        return [text.encode(errors="replace") for text in texts]

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids)))

    def _completed(self, ids: Sequence[int], texts: Sequence[str]) -> Iterator[str]:
        """Tokens that are not a text by themselves, read together with those after them until they are."""
        pending: list[int] = []
        for place, (token, text) in enumerate(zip(ids, texts, strict=True), start=1):
            if not pending and _INCOMPLETE not in text:
                yield text
                continue
            pending.append(token)
            together = self._decode(pending)
            if together.endswith(_INCOMPLETE) and place < len(ids):
                yield ""
            else:
                yield together
                pending = []

    def _by_prefix(self, ids: Sequence[int]) -> Iterator[str]:
        """Where a token's text depends on what is before it: what the text up to it has more than the text before it."""
        shown = ""
        for end in range(1, len(ids) + 1):
            text = self._decode(ids[:end])
            if text.endswith(_INCOMPLETE) and end < len(ids):
                yield ""
            else:
                yield text[len(shown) :]
                shown = text


class TraceTooLarge(Exception):
    """More than one report can carry."""


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
    pieces = [texts.of(completion.ids) for completion in completions]
    offsets = [list(accumulate(map(len, parts), initial=0)) for parts in pieces]
    columns = {
        "group": pa.array([row // rollout.group_size for row in rows], pa.int32()),
        "completion": pa.array([row % rollout.group_size for row in rows], pa.int32()),
        "token_ids": pa.array([completion.ids for completion in completions], pa.list_(pa.int32())),
        "text": pa.array([b"".join(parts) for parts in pieces], pa.binary()),
        "text_offsets": pa.array(offsets, pa.list_(pa.int32())),
        "sampling_logprob": pa.array([completion.logprobs for completion in completions], pa.list_(pa.float32())),
    }
    measured = [name for name in TokenTrace.model_fields if tokens.get(name) is not None]
    buffer = io.BytesIO()
    table = pa.table(columns | {name: _lists(name, rows, tokens) for name in measured})
    pq.write_table(table, buffer, compression="zstd")
    data = buffer.getvalue()
    if len(data) > MAX_BYTES:
        raise TraceTooLarge(
            f"the token traces of {len(rows):,} completions are {len(data) / 2**20:.0f} MiB, above {MAX_BYTES / 2**20:.0f}"
        )
    return TraceFile(
        sha256=hashlib.sha256(data).hexdigest(), data=base64.b64encode(data).decode("ascii"), rows=len(rows)
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
