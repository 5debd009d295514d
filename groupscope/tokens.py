"""The values of each token of a completion, and the file in which those of a step travel."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import compress
from statistics import fmean
from typing import Any, cast

from backend.contract.protocol import TraceFile

Values = Sequence[float | None]
FLAGS = ("trained", "clipped")  # are true or false


@dataclass
class Tokens:
    """The tokens of a completion, and of each what the trainer knows; every list is as long as `ids`. Log-probs in nats.

    `texts` are the bytes that each token adds to the text; `trained` says of which the loss is made, None for all.
    """

    ids: Sequence[int]
    texts: Sequence[bytes] | None = None
    trained: Sequence[bool] | None = None
    sampling_logprob: Values | None = None
    old_logprob: Values | None = None
    logprob: Values | None = None
    reference_logprob: Values | None = None
    entropy: Values | None = None
    ratio: Values | None = None
    clipped: Sequence[bool] | None = None
    kl: Values | None = None
    advantage: Values | None = None

    def checked(self) -> "Tokens":
        """The same as plain lists, NaN as None.

        Raises ValueError for lists that are not as long as `ids`, for ids that no tokenizer has and for flags that are neither true nor
        false, and TypeError for values of another kind.
        """
        ids = list(map(int, _plain(self.ids)))
        if ids and not (min(ids) >= 0 and max(ids) < 2**31):
            raise ValueError("a token's id is below 0 or above 2,147,483,647")
        found: dict[str, Any] = {name: _plain(getattr(self, name)) for name in ("texts", *MEASURED)}
        for name, values in found.items():
            if values is not None and len(values) != len(ids):
                raise ValueError(f"{name} has {len(values)} values for {len(ids)} tokens")
        known: dict[str, Any] = {name: values and _each(name, values) for name, values in found.items()}
        return Tokens(ids, **known)

    def summary(self) -> dict[str, float | None]:
        """What the completion's card shows of those that the loss counts."""
        old = self.old_logprob if self.old_logprob is not None else self.sampling_logprob
        return {
            "logprob_sum": self._known(old, math.fsum),
            "kl_mean": self._known(self.kl, fmean),
            "entropy_mean": self._known(self.entropy, fmean),
            "ratio_mean": self._known(self.ratio, fmean),
            "clipped_share": self._known(self.clipped, fmean),
        }

    def _known(self, values: Values | None, of: Callable[[Iterable[float]], float]) -> float | None:
        """Of all of these tokens; None if one of them has no value."""
        each = values or () if self.trained is None else list(compress(values or (), self.trained))
        return None if not each or None in each else of(cast(Sequence[float], each))


def _plain(values: Any) -> Any:
    """A list, of a tensor or an array, too."""
    if values is None:
        return None
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _each(name: str, values: list[Any]) -> Sequence[Any]:
    if name == "texts":
        for odd in set(map(type, values)) - {bytes}:
            raise TypeError(f"texts are bytes, and one of them is of the type {odd.__name__}: encode it")
        return values
    if name in FLAGS:
        if set(values) - {True, False}:
            raise ValueError(f"{name} is true or false for each token")
        return list(map(bool, values))
    return _finite(values)


def _finite(values: Values) -> Values:
    """The same numbers, None for those that are missing or not finite. Most lists have none of these: they are not looked at one by one."""
    try:
        floats = list(map(float, cast(Sequence[float], values)))  # None is a TypeError
        if math.isfinite(sum(floats)):
            return floats
    except TypeError:
        pass
    return [None if value is None or not math.isfinite(value) else float(value) for value in values]


MEASURED = tuple(one.name for one in fields(Tokens) if one.name not in ("ids", "texts"))


def trace_of(groups: Sequence[Sequence[Tokens | None]]) -> TraceFile | None:
    """The traces of a step's completions, whose tokens were `checked`; None where none has token values. Raises TraceTooLarge."""
    there = [(g, c, one) for g, group in enumerate(groups) for c, one in enumerate(group) if one is not None]
    if not there:
        return None
    import pyarrow as pa

    from backend.contract.trace_file import packed

    measured = {}
    for name in MEASURED:
        values = [getattr(one, name) for _, _, one in there]
        if any(each is not None for each in values):
            measured[name] = pa.array(values, pa.list_(pa.bool_() if name in FLAGS else pa.float32()))
    return packed(
        [(g, c) for g, c, _ in there],
        [one.ids for _, _, one in there],
        [one.texts if one.texts is not None else [b""] * len(one.ids) for _, _, one in there],
        measured,
    )
