"""What the token view is given: a trace as columns of numbers, each with how it is coloured and what it means."""

import base64
import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from backend.contract.base import Json
from backend.contract.groups import CompletionRecord, TokenTrace
from dashboard.components.model_text import marked
from dashboard.components.stored import text_at
from dashboard.token_view.pull import in_words, pulls, stored_surrogate

Values = NDArray[np.float64]
Colouring = Literal["signed", "size"]
"""`signed`: one colour above the middle, another below. `size`: the further from 0, the stronger."""

FULL_COLOUR = 0.99  # the share of tokens that stay below the full colour, so that one outlier does not pale the others


@dataclass(frozen=True)
class Column:
    """One value of every token; NaN where it is not known. Without a colouring it is only read, never shown in colour."""

    name: str
    title: str
    about: str
    values_T: Values
    colouring: Colouring | None = None
    middle: float = 0.0


class Drawn(TypedDict):
    """A column as it travels: the numbers as base64 of little-endian float32, which is what the trace holds."""

    name: str
    title: str
    about: str
    values: str
    ends: tuple[float, float] | None  # where the colours are full; of `size`, the first is none
    signed: bool


class View(TypedDict):
    """All that the component is given. Positions count from 0."""

    completion: int
    label: str
    ids: list[int]
    shown: list[str]
    literal: dict[int, str]  # of the tokens that are not shown as they are
    clipped: list[int] | None  # None where it is not known
    columns: list[Drawn]
    note: str


def view_of(trace: TokenTrace, completion: CompletionRecord, config: Mapping[str, Json]) -> View:
    """The view of one completion, from its trace and the configuration that its run was stored with."""
    shown = [_sign(text, token) for text, token in zip(trace.texts, trace.token_ids, strict=True)]
    return {
        "completion": completion.id,
        "label": f"Tokens of completion {completion.index + 1}",
        "ids": trace.token_ids,
        "shown": shown,
        "literal": {place: repr(text) for place, text in enumerate(trace.texts) if shown[place] != text},
        "clipped": None if trace.clipped is None else [place for place, cut in enumerate(trace.clipped) if cut],
        "columns": [_drawn(column) for column in columns(trace, completion, config)],
        "note": "" if trace.old_logprob or trace.logprob else NOT_TRAINED_ON,
    }


NOT_TRAINED_ON = (
    "This completion went through no training pass: its group had nothing to teach, as all its advantages are 0. What is "
    "known of its tokens is what the sampler said."
)


def columns(trace: TokenTrace, completion: CompletionRecord, config: Mapping[str, Json]) -> list[Column]:
    """The values that are known of any token, those that can be shown in colour first."""
    read = {name: _values(trace, name) for name in ("old_logprob", "logprob", "logprob_after", "sampling_logprob")}
    old, new, after, sampled = read.values()
    advantage = _values(trace, "advantage")
    if np.isnan(advantage).all() and completion.advantage is not None:
        advantage = np.full_like(advantage, completion.advantage)
    critic = trace.value is not None
    kl, value, returns = (_values(trace, name) for name in ("kl", "value", "returns"))
    return [
        column
        for column in (
            _pull(_values(trace, "ratio"), advantage, completion, config),
            Column("advantage", "Advantage", _ADVANTAGE[critic], advantage, "signed" if critic else None),
            Column("ratio", "Ratio", _RATIO.get(text_at(config, "algorithm.ratio", "token"), "New over old probability."), _values(trace, "ratio"), "signed", 1.0),
            Column("kl", "KL", "To the reference, in nats, as the run's estimator has it.", kl, _sized(kl)),
            Column("entropy", "Entropy", "Of the distribution that the token was drawn from, in nats: 0 is no choice at all.",
                   _values(trace, "entropy"), "size"),
            Column("logprob", "Log-prob", "Of this token, in nats, at the last update: 0 is certain, far below 0 a surprise.",
                   new, "size"),
            Column("change", "Change of log-prob", "By this step's update: the log-prob after it, minus the one before it.",
                   after - old, "signed"),
            Column("mismatch", "Sampling − training", "The sampler's log-prob minus the training pass's, before the update. "
                   "Healthy: 0 but for rounding.", sampled - old, "signed"),
            Column("value", "Value", "The reward that the critic expected before this token.", value, _sized(value)),
            Column("returns", "Return", "What the critic should have expected, by GAE.", returns, _sized(returns)),
            Column("sampling_logprob", "Log-prob, sampled", "Under the sampler.", sampled,
                   "size" if np.isnan(new).all() else None),
            Column("old_logprob", "Log-prob, before", "Before the update: what the ratio divides by.", old),
            Column("logprob_after", "Log-prob, after", "After the update.", after),
            Column("reference_logprob", "Log-prob, reference", "Under the reference policy.",
                   _values(trace, "reference_logprob")),
        )
        if column is not None and not np.isnan(column.values_T).all()
    ]  # fmt: skip


_ADVANTAGE = {
    False: "Of the completion: every token has the same.",
    True: "Of this token, by GAE.",
}
_RATIO = {
    "token": "New over old probability of the token. With one update per batch it is exactly 1.",
    "sequence_mean": "New over old probability: the geometric mean over the completion, the same for every token.",
    "sequence_product": "New over old probability of the whole completion, the same for every token.",
}


def _pull(
    ratio_T: Values, advantage_T: Values, completion: CompletionRecord, config: Mapping[str, Json]
) -> Column | None:
    surrogate = stored_surrogate(config)
    if surrogate is None:
        return None
    about = (
        f"How hard the loss pulls this token's log-prob up (+) or down (−): {in_words(surrogate)}. Before the KL penalty, and "
        "before tokens are averaged."
    )
    pull_T = pulls(surrogate, ratio_T, advantage_T)
    masked = text_at(config, "algorithm.truncated_completions", "keep") == "mask"
    if masked and completion.finish_reason == "length":
        pull_T = np.where(np.isnan(pull_T), pull_T, 0.0)
        about = (
            "0 throughout: the completion was cut at the token limit, and this run leaves such ones out of the loss."
        )
    return Column("pull", "Advantage × weight", about, pull_T, "signed")


def _values(trace: TokenTrace, name: str) -> Values:
    """A list of the trace as numbers; NaN where it was not computed."""
    values = getattr(trace, name)
    if values is None:
        return np.full(len(trace.token_ids), math.nan)
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _sized(values_T: Values) -> Colouring:
    return "signed" if np.any(values_T < 0) else "size"


def _drawn(column: Column) -> Drawn:
    return {
        "name": column.name,
        "title": column.title,
        "about": column.about,
        "values": base64.b64encode(column.values_T.astype("<f4").tobytes()).decode("ascii"),
        "ends": _ends(column),
        "signed": column.colouring == "signed",
    }


def _ends(column: Column) -> tuple[float, float] | None:
    """The values of full colour."""
    if column.colouring is None:
        return None
    away_T = np.abs(column.values_T - column.middle)
    known = np.sort(away_T[np.isfinite(away_T)])
    reach = float(f"{known[math.ceil(FULL_COLOUR * len(known)) - 1]:.3g}")
    if column.colouring == "signed":
        return column.middle - reach, column.middle + reach
    return 0.0, -reach if np.nanmin(column.values_T) < 0 else reach


def _sign(text: str, token: int) -> str:
    """The token as it is drawn: with a sign for whatever is not seen by itself."""
    if not text:
        return f"⟨{token}⟩"
    combines = unicodedata.category(text[0]) in ("Mn", "Me", "Mc")
    return ("◌" if combines else "") + marked(text)
