"""The values of each token of a completion, and the file in which those of a step travel."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from statistics import fmean

from backend.contract.protocol import TraceFile

Values = Sequence[float | None]


@dataclass
class Tokens:
    """The tokens of a completion, and of each what the trainer knows; every list is as long as `ids`. Log-probs in nats.

    `texts` are the bytes that each token adds to the text.
    """

    ids: Sequence[int]
    texts: Sequence[bytes] | None = None
    sampling_logprob: Values | None = None
    old_logprob: Values | None = None
    logprob: Values | None = None
    reference_logprob: Values | None = None
    entropy: Values | None = None
    ratio: Values | None = None
    clipped: Sequence[bool] | None = None
    kl: Values | None = None
    advantage: Values | None = None

    def summary(self) -> dict[str, float | None]:
        """What the completion's card shows of them."""
        old = self.old_logprob if self.old_logprob is not None else self.sampling_logprob
        return {
            "logprob_sum": _known(old, math.fsum),
            "kl_mean": _known(self.kl, fmean),
            "entropy_mean": _known(self.entropy, fmean),
            "ratio_mean": _known(self.ratio, fmean),
            "clipped_share": None if not self.clipped else fmean(map(float, self.clipped)),
        }


def _known(values: Values | None, of: "object") -> float | None:
    if values is None or not len(values) or any(value is None or not math.isfinite(value) for value in values):
        return None
    return float(of(values))  # type: ignore[operator]


MEASURED = tuple(one.name for one in fields(Tokens) if one.name not in ("ids", "texts"))


def trace_of(groups: Sequence[Sequence[Tokens | None]]) -> TraceFile | None:
    """The traces of a step's completions; None where no completion has token values."""
    there = [(g, c, one) for g, group in enumerate(groups) for c, one in enumerate(group) if one is not None]
    if not there:
        return None
    import pyarrow as pa

    from backend.contract.trace_file import packed

    pieces = [one.texts if one.texts is not None else [b""] * len(one.ids) for _, _, one in there]
    columns = {
        "group": pa.array([g for g, _, _ in there], pa.int32()),
        "completion": pa.array([c for _, c, _ in there], pa.int32()),
        "token_ids": pa.array([list(one.ids) for _, _, one in there], pa.list_(pa.int32())),
        "text": pa.array([b"".join(parts) for parts in pieces], pa.binary()),
        "text_offsets": pa.array(
            [list(accumulate(map(len, parts), initial=0)) for parts in pieces], pa.list_(pa.int32())
        ),
    }
    for name in MEASURED:
        values = [getattr(one, name) for _, _, one in there]
        if any(each is not None for each in values):
            kind = pa.bool_() if name == "clipped" else pa.float32()
            columns[name] = pa.array([None if each is None else list(each) for each in values], pa.list_(kind))
    return packed(columns, len(there))
