"""The values of one completion's tokens: which there are, what each means, and how it is coloured."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from backend.contract.base import Json
from backend.contract.groups import CompletionRecord, TokenTrace
from dashboard.algorithm.surrogates import Values, pull_in_words, pulls, stored_surrogate
from dashboard.components.stored import text_at

Colouring = Literal["signed", "size"]
"""`signed`: one colour above the middle, another below. `size`: the further from 0, the stronger."""


@dataclass(frozen=True)
class Column:
    """One value of every token; NaN where it is not known. One that is not `offered` is read, and colours nothing."""

    name: str
    title: str
    about: str
    values_T: Values
    colouring: Colouring
    middle: float = 0.0
    offered: bool = True


def columns(trace: TokenTrace, completion: CompletionRecord, config: Mapping[str, Json]) -> list[Column]:
    """What is known of any token, in the order in which a person asks for it."""
    found = [
        *_of_the_loss(trace, completion, config),
        *_of_the_policy(trace),
        *_of_the_critic(trace),
        *_of_single_passes(trace),
    ]
    return [column for column in found if not np.isnan(column.values_T).all()]


def _of_the_loss(trace: TokenTrace, completion: CompletionRecord, config: Mapping[str, Json]) -> list[Column]:
    advantage_T, ratio_T = _values(trace, "advantage"), _values(trace, "ratio")
    if np.isnan(advantage_T).all() and completion.advantage is not None:
        advantage_T = np.full_like(advantage_T, completion.advantage)
    by_token = trace.value is not None
    whose = "Of this token, by GAE." if by_token else "Of the completion: every token has the same."
    level = text_at(config, "algorithm.ratio", "token")
    return [
        *_pull(ratio_T, advantage_T, completion, config),
        Column("advantage", "Advantage", whose, advantage_T, "signed", offered=by_token),
        Column("ratio", "Ratio", f"New over old probability{_RATIO_OF.get(level, '.')}", ratio_T, "signed", middle=1.0),
    ]


_RATIO_OF = {
    "token": " of the token. With one update per batch it is exactly 1.",
    "sequence_mean": ": the geometric mean over the completion, the same for every token.",
    "sequence_product": " of the whole completion, the same for every token.",
}


def _pull(
    ratio_T: Values, advantage_T: Values, completion: CompletionRecord, config: Mapping[str, Json]
) -> list[Column]:
    surrogate = stored_surrogate(config)
    if surrogate is None:
        return []
    pull_T = pulls(surrogate, ratio_T, advantage_T)
    about = (
        f"How hard the loss pulls the token's log-prob up (+) or down (−): {pull_in_words(surrogate)}. Before the KL penalty, and "
        "before tokens are averaged."
    )
    masked = text_at(config, "algorithm.truncated_completions", "keep") == "mask"
    if masked and completion.finish_reason == "length":
        pull_T = np.zeros_like(pull_T)
        about = "0: the completion was cut at the token limit, and this run leaves such completions out of the loss."
    return [Column("pull", "Advantage × weight", about, pull_T, "signed")]


def _of_the_policy(trace: TokenTrace) -> list[Column]:
    old_T, after_T, kl_T = (_values(trace, name) for name in ("old_logprob", "logprob_after", "kl"))
    return [
        Column("kl", "KL", "To the reference, in nats, by the run's estimator.", kl_T, _by_sign(kl_T)),
        Column(
            "entropy",
            "Entropy",
            "Of the distribution that the token was drawn from, in nats: 0 is no choice at all.",
            _values(trace, "entropy"),
            "size",
        ),
        Column(
            "logprob",
            "Log-prob",
            "At the last update on the batch, in nats: 0 is certain, far below 0 a surprise.",
            _values(trace, "logprob"),
            "size",
        ),
        Column(
            "change",
            "Change of log-prob",
            "By this step's update: the log-prob after it, minus the one before it.",
            after_T - old_T,
            "signed",
        ),
        Column(
            "mismatch",
            "Sampling − training",
            "The sampler's log-prob, minus the training pass's before the update. Healthy: 0 but for rounding.",
            _values(trace, "sampling_logprob") - old_T,
            "signed",
        ),
    ]


def _of_the_critic(trace: TokenTrace) -> list[Column]:
    value_T, returns_T = _values(trace, "value"), _values(trace, "returns")
    return [
        Column("value", "Value", "The reward that the critic expected before this token.", value_T, _by_sign(value_T)),
        Column("returns", "Return", "What the critic should have expected, by GAE.", returns_T, _by_sign(returns_T)),
    ]


def _of_single_passes(trace: TokenTrace) -> list[Column]:
    """Log-probs to read beside those above; the sampler's is all there is where no pass was made."""
    names = {
        "sampling_logprob": ("Log-prob, sampled", "Under the sampler."),
        "old_logprob": ("Log-prob, before", "Before the update: what the ratio divides by."),
        "logprob_after": ("Log-prob, after", "After the update."),
        "reference_logprob": ("Log-prob, reference", "Under the reference policy."),
    }
    only = trace.logprob is None
    return [
        Column(name, title, about, _values(trace, name), "size", offered=only and name == "sampling_logprob")
        for name, (title, about) in names.items()
    ]


def _values(trace: TokenTrace, name: str) -> Values:
    """A list of the trace as numbers; NaN where it was not computed."""
    values: list[float | None] | None = getattr(trace, name)
    if values is None:
        return np.full(len(trace.token_ids), math.nan)
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _by_sign(values_T: Values) -> Colouring:
    return "signed" if np.any(values_T < 0) else "size"
