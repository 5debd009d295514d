"""The values of one completion's tokens: which there are, what each means, and how they travel to the browser."""

import base64
import math
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypedDict

import numpy as np

from backend.contract.base import Json
from backend.contract.groups import CompletionRecord, TokenTrace
from dashboard.algorithm.surrogates import Values, pull_in_words, pulls, stored_surrogate
from dashboard.stored import text_at
from dashboard.text import marked


@dataclass(frozen=True)
class Column:
    """One value of every token; NaN where it is not known. One that is not `offered` is read, and colours nothing."""

    name: str
    title: str
    about: str
    values_T: Values
    signed: bool  # one colour above the middle, another below; otherwise the further from 0, the stronger
    middle: float = 0.0
    offered: bool = True


def _of_the_loss(trace: TokenTrace, completion: CompletionRecord, config: Mapping[str, Json]) -> Iterator[Column]:
    """The pull, and what it is made of."""
    advantage_T, ratio_T = _values(trace, "advantage"), _values(trace, "ratio")
    if np.isnan(advantage_T).all() and completion.advantage is not None:
        advantage_T = np.full_like(advantage_T, completion.advantage)
    surrogate = stored_surrogate(config)
    if surrogate is not None:
        pull_T = pulls(surrogate, ratio_T, advantage_T)
        about = (
            f"How hard the loss pulls the token's log-prob up (+) or down (−): {pull_in_words(surrogate)}. Before the KL penalty, "
            "and before tokens are averaged."
        )
        masked = text_at(config, "algorithm.truncated_completions", "keep") == "mask"
        if masked and completion.finish_reason == "length":
            pull_T = np.zeros_like(pull_T)
            about = (
                "0: the completion was cut at the token limit, and this run leaves such completions out of the loss."
            )
        if trace.trained is not None:
            pull_T = np.where(trace.trained, pull_T, 0.0)
        yield Column("pull", "Pull", about, pull_T, signed=True)
    by_token = trace.value is not None
    whose = "Of this token, by GAE." if by_token else "Of the completion: every token has the same."
    yield Column("advantage", "Advantage", whose, advantage_T, signed=True, offered=by_token)
    of = _RATIO_OF.get(text_at(config, "algorithm.ratio", "token"), ".")
    yield Column("ratio", "Ratio", f"New over old probability{of}", ratio_T, signed=True, middle=1.0)


_RATIO_OF = {
    "token": " of the token. With one update per batch it is exactly 1.",
    "sequence_mean": ": the geometric mean over the completion, the same for every token.",
    "sequence_product": " of the whole completion, the same for every token.",
}
_TITLES = {  # and what each means
    "kl": ("KL", "To the reference, in nats, by the run's estimator."),
    "entropy": (
        "Entropy",
        "Entropy of the distribution from which the token was drawn, in nats: at 0 only one token was possible.",
    ),
    "logprob": (
        "Log-prob",
        "In the training pass of the last update on the batch, before its optimizer step, in nats: 0 is certain, far below 0 a surprise.",
    ),
    "change": ("Change of log-prob", "By this step's update: the log-prob after it, minus the one before it."),
    "mismatch": (
        "Sampling − training",
        "The sampler's log-prob, minus the training pass's before the update. Healthy: 0, apart from rounding.",
    ),
    "value": ("Value", "The reward that the critic expected before this token."),
    "returns": ("Return", "What the critic should have expected, by GAE."),
    "sampling_logprob": ("Log-prob, sampled", "Under the sampler."),
    "old_logprob": ("Log-prob, before the update", "What the ratio divides by."),
    "logprob_after": ("Log-prob, after", "After the update."),
    "reference_logprob": ("Log-prob, reference", "Under the reference policy."),
}
_ONLY_READ = ("sampling_logprob", "old_logprob", "logprob_after", "reference_logprob")  # beside those that colour


def _of_passes(trace: TokenTrace) -> Iterator[Column]:
    """What the policy, the critic and single passes gave; the sampler's log-prob is all there is where no pass was made."""
    old_T = _values(trace, "old_logprob")
    differences = {
        "change": _values(trace, "logprob_after") - old_T,
        "mismatch": _values(trace, "sampling_logprob") - old_T,
    }
    for name, (title, about) in _TITLES.items():
        values_T = differences[name] if name in differences else _values(trace, name)
        signed = name in differences or (name in ("kl", "value", "returns") and bool(np.any(values_T < 0)))
        offered = name not in _ONLY_READ or (name == "sampling_logprob" and trace.logprob is None)
        yield Column(name, title, about, values_T, signed, offered=offered)


def _values(trace: TokenTrace, name: str) -> Values:
    """A list of the trace as numbers; NaN where it was not computed."""
    values: list[float | None] | None = getattr(trace, name)
    if values is None:
        return np.full(len(trace.token_ids), math.nan)
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


FULL_COLOUR = 0.99  # the share of tokens that stay within the full colour, so that an outlier does not pale the others

NOT_TRAINED_ON = (
    "This completion went through no training pass: all advantages of its group are 0, and the loss has no other part, such "
    "as a KL penalty. What is known of its tokens is what the sampler said."
)


class Drawn(TypedDict):
    """A column as it travels: its numbers as base64 of little-endian float32, which is what a trace holds."""

    name: str
    title: str
    about: str
    values: str
    offered: bool
    signed: bool
    middle: float  # where there is no colour
    reach: float  # how far from there it is full; negative where the values of a size are


class View(TypedDict):
    """All that the component is given. Positions count from 0."""

    completion: int
    label: str
    ids: list[int]
    shown: list[str]
    literal: dict[int, str]  # where it is not the one that `shown` implies
    clipped: list[int]
    # the stretches that the loss does not count, each from its first token up to the next trained one
    untrained: list[tuple[int, int]]
    columns: list[Drawn]
    opens_on: str  # the column that colours the tokens until another is chosen: the first that says more than one number, if any does
    note: str


def view_of(trace: TokenTrace, completion: CompletionRecord, config: Mapping[str, Json]) -> View:
    """The view of one completion, from its trace and the configuration that its run was stored with."""
    known = (*_of_the_loss(trace, completion, config), *_of_passes(trace))  # as a person asks for them
    found = [column for column in known if not np.isnan(column.values_T).all()]
    offered = [column for column in found if column.offered]
    telling = (column for column in offered if np.nanmin(column.values_T) < np.nanmax(column.values_T))
    shown = [_drawable(text, token) for text, token in zip(trace.texts, trace.token_ids, strict=True)]
    return {
        "completion": completion.id,
        "label": f"Tokens of completion {completion.index + 1}",
        "ids": trace.token_ids,
        "shown": shown,
        "literal": {
            place: repr(text)
            for place, text in enumerate(trace.texts)
            if repr(text) != f"'{shown[place].replace('·', ' ')}'"  # the script turns signs into spaces, too
        },
        "clipped": [place for place, cut in enumerate(trace.clipped or []) if cut],
        "untrained": _stretches(trace.trained or []),
        "columns": [_drawn(column) for column in found],
        "opens_on": next((one.name for one in (*telling, *offered)), ""),
        "note": NOT_TRAINED_ON if trace.logprob is None and completion.advantage == 0 else "",
    }


def _stretches(trained: list[bool]) -> list[tuple[int, int]]:
    """From where the loss stops to count tokens up to where it counts them again."""
    turns = [place for place, (before, one) in enumerate(pairwise([True, *trained, True])) if one != before]
    return list(zip(turns[::2], turns[1::2], strict=True))


def _drawn(column: Column) -> Drawn:
    known = column.values_T[~np.isnan(column.values_T)]
    away = np.sort(np.abs(known - column.middle))
    reach = float(away[math.ceil(FULL_COLOUR * len(away)) - 1])
    return {
        "name": column.name,
        "title": column.title,
        "about": column.about,
        "values": base64.b64encode(column.values_T.astype("<f4").tobytes()).decode("ascii"),
        "offered": column.offered,
        "signed": column.signed,
        "middle": column.middle,
        "reach": -reach if not column.signed and known.min() < 0 else reach,
    }


def _drawable(text: str, token: int) -> str:
    """The token with a sign for whatever is not seen by itself; one without a text is shown by its id."""
    if not text:
        return f"⟨{token}⟩"
    combines = unicodedata.category(text[0]).startswith("M")
    return ("◌" if combines else "") + marked(text)
