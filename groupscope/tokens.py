"""The values of each token of a completion, and the file in which those of a step travel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.contract.base import finite
from backend.contract.protocol import TraceFile

Values = Sequence[float | None] | NDArray[np.floating]
Flags = Sequence[bool] | NDArray[np.bool_]
FLAGS = ("trained", "clipped")  # are true or false


@dataclass
class Tokens:
    """The tokens of a completion, and of each what the trainer knows; every list or array is as long as `ids`. Log-probs in nats.

    `texts` are the bytes that each token adds to the text; `trained` says of which the loss is made, None for all.
    """

    ids: Sequence[int] | NDArray[np.integer]
    texts: Sequence[bytes] | None = None
    trained: Flags | None = None
    sampling_logprob: Values | None = None
    old_logprob: Values | None = None
    logprob: Values | None = None
    reference_logprob: Values | None = None
    entropy: Values | None = None
    ratio: Values | None = None
    clipped: Flags | None = None
    kl: Values | None = None
    advantage: Values | None = None

    def checked(self) -> "Tokens":
        """The same as arrays, NaN for what is missing or not finite.

        Raises ValueError for lists that are not as long as `ids`, for ids that no tokenizer has and for flags that are neither true nor
        false, and TypeError for values of another kind.
        """
        ids = _array(self.ids)
        if ids.dtype.kind not in "iu" and len(ids):
            raise TypeError("the ids of tokens are whole numbers")
        if len(ids) and not (ids.min() >= 0 and ids.max() < 2**31):
            raise ValueError("a token's id is below 0 or above 2,147,483,647")
        flags = {name: _flags(name, values) for name in FLAGS if (values := getattr(self, name)) is not None}
        numbers = {name: _array(values) for name in NUMBERS if (values := getattr(self, name)) is not None}
        texts = None if self.texts is None else _bytes(self.texts)
        for name, values in {"texts": texts, **flags, **numbers}.items():
            if values is not None and len(values) != len(ids):
                raise ValueError(f"{name} has {len(values)} values for {len(ids)} tokens")
        known: dict[str, Any] = {**flags, **_numbers(numbers)}
        return Tokens(ids.astype(np.int32), texts, **known)

    def summary(self) -> dict[str, float | None]:
        """What the completion's card shows of those that the loss counts; of tokens that were `checked`."""
        old = self.old_logprob if self.old_logprob is not None else self.sampling_logprob
        shown: dict[str, Values | Flags | None] = {"logprob_sum": old, "kl_mean": self.kl, "entropy_mean": self.entropy}
        shown |= {"ratio_mean": self.ratio, "clipped_share": self.clipped}
        there = {name: values for name, values in shown.items() if values is not None}
        found: dict[str, float | None] = dict.fromkeys(shown)
        each = np.array(list(there.values()), np.float64)
        if self.trained is not None and there:
            each = each[:, np.asarray(self.trained)]
        if each.size:  # a sum is NaN where one of them has no value
            means = zip(there, each.sum(axis=1).tolist(), strict=True)
            found |= {name: finite(of if name == "logprob_sum" else of / each.shape[1]) for name, of in means}
        return found


def _array(values: Any) -> NDArray[Any]:
    """Of a list, a tensor or an array. Raises ValueError unless it has one axis."""
    plain = isinstance(values, np.ndarray) or not hasattr(values, "tolist")
    array = np.asarray(values if plain else values.tolist())
    if array.ndim != 1:
        raise ValueError(f"one value for each token is wanted, and not {array.ndim} axes of them")
    return array


def _flags(name: str, values: Any) -> NDArray[np.bool_]:
    array = _array(values)
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} is true or false for each token")
    return array.astype(np.bool_)


def _numbers(columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
    """Columns of one length, as rows of one array: numpy takes as long for one short column as for all of them."""
    found = np.array([values.astype(np.float64) for values in columns.values()])  # None is NaN
    with np.errstate(over="ignore"):  # beyond the largest float32, as which it is kept
        whole = np.isfinite(found.astype(np.float32))
    return dict(zip(columns, found if whole.all() else np.where(whole, found, np.nan), strict=True))


def _bytes(texts: Sequence[bytes]) -> list[bytes]:
    for odd in set(map(type, texts)) - {bytes}:
        raise TypeError(f"texts are bytes, and one of them is of the type {odd.__name__}: encode it")
    return list(texts)


MEASURED = tuple(one.name for one in fields(Tokens) if one.name not in ("ids", "texts"))
NUMBERS = tuple(name for name in MEASURED if name not in FLAGS)


def trace_of(groups: Sequence[Sequence[Tokens | None]]) -> TraceFile | None:
    """The traces of a step's completions, whose tokens were `checked`; None where none has token values. Raises TraceTooLarge."""
    there = [(g, c, one) for g, group in enumerate(groups) for c, one in enumerate(group) if one is not None]
    if not there:
        return None
    from backend.contract.trace_file import lists, packed

    measured = {}
    for name in MEASURED:
        values = [getattr(one, name) for _, _, one in there]
        if any(each is not None for each in values):
            measured[name] = lists(values, np.bool_ if name in FLAGS else np.float32)
    return packed(
        [(g, c) for g, c, _ in there],
        [one.ids for _, _, one in there],
        [one.texts if one.texts is not None else [b""] * len(one.ids) for _, _, one in there],
        measured,
    )
