"""Length drift: completions grow or shrink, and nothing gets better by it."""

from backend.health.facts import RECENT, Facts
from backend.health.rule import Finding, Rule, evidence
from backend.health.words import figure, span

FACTOR = 2.0
RISEN = 0.25  # of the rewards' std at the start


def check(facts: Facts) -> Finding | None:
    """Where the reward rises with the length, the length may well be what it takes."""
    length = facts.recent("completions/mean_length")
    before, now = facts.began("completions/mean_length").mean, length.mean
    if not before or not now or 1 / FACTOR < now / before < FACTOR or facts.solved() or _risen(facts):
        return None
    reward, earlier = facts.recent("reward").mean, facts.began("reward").mean
    gained = (
        f", while the reward went from {figure(earlier)} to {figure(reward)}"
        if earlier is not None and reward is not None
        else ""
    )
    longer = now > before
    return Finding(
        title=f"Completions grow {'longer' if longer else 'shorter'}, not better",
        measured=f"Mean length went from {figure(before)} tokens in the first {RECENT} steps to {figure(now)} over "
        f"{span(min(length.values), max(length.values))} ({figure(now / before)} times){gained}.",
        advice="Read completions from both ends of the run. "
        + (
            "If they ramble, average the loss so that long wrong answers do not get off lightly (aggregation token_mean or "
            "constant), or add a length reward."
            if longer
            else "If they leave out the reasoning, a reward may be had without it: look at what the reward functions accept."
        ),
        numbers={"length_at_start": before, "length_now": now},
        evidence=evidence((0, max(length.values)), "completions/mean_length", "reward", step=max(length.values)),
    )


def _risen(facts: Facts) -> bool:
    earlier, now, std = facts.began("reward").mean, facts.recent("reward").mean, facts.began("reward_std").mean
    return earlier is not None and now is not None and now - earlier >= RISEN * (std or 0.0) and now > earlier


RULE = Rule(
    code="length_drift",
    title="Completions change their length, and get no better",
    words=f"mean length of the last {RECENT} steps is at least {FACTOR:g} times that of the first {RECENT}, or at most half of it, "
    f"while the reward rose by less than {RISEN:g} of its std at the start and is below 90 % of the highest there is",
    check=check,
    metrics=("completions/mean_length", "reward", "reward_std"),
    steps=2 * RECENT,
)
