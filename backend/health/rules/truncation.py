"""Completions that never end: they are cut at the token limit before they can be right."""

from backend.health.facts import RECENT, Facts
from backend.health.rule import Finding, Rule, evidence
from backend.health.stored import number
from backend.health.words import figure, percent, span

SHARE = 0.25


def check(facts: Facts) -> Finding | None:
    """What is cut is scored as it stands, and mostly as wrong."""
    cut = facts.recent("completions/clipped_ratio")
    mean, peak = cut.mean, cut.peak
    if mean is None or peak is None or mean < SHARE:
        return None
    limit = int(number(facts.config, "sampling.max_new_tokens", 0))
    length = facts.recent("completions/mean_length").mean
    long = f"; their mean length was {figure(length)} tokens" if length is not None else ""
    return Finding(
        measured=f"{percent(mean)} of the completions of {span(min(cut.values), max(cut.values))} were cut at {limit} tokens{long}.",
        advice=f"Raise sampling.max_new_tokens (now {limit}), ask for shorter answers in the system prompt, or leave what is cut out "
        "of the loss (algorithm.truncated_completions: mask). If the texts run on without sense, look at entropy and KL first.",
        numbers={"mean_share": mean, "max_new_tokens": limit},
        evidence=evidence(
            cut.values, "completions/clipped_ratio", "completions/mean_length", step=peak, finish_reason="length"
        ),
    )


RULE = Rule(
    code="truncation",
    title="Many completions are cut",
    words=f"on average over the last {RECENT} steps at least {percent(SHARE)} of the completions reach max_new_tokens",
    check=check,
    metrics=("completions/clipped_ratio",),
)
