"""Entropy collapse: the policy no longer tries anything, and the task is not solved."""

from backend.health.facts import RECENT, Facts
from backend.health.rule import Finding, Rule, evidence
from backend.health.words import figure, percent, span

LEFT = 0.2


def check(facts: Facts) -> Finding | None:
    """A solved task needs no entropy; an unsolved one cannot be learned without."""
    recent, began = facts.recent("entropy"), facts.began("entropy").mean
    now = recent.mean
    if now is None or not began or now > LEFT * began or facts.solved():
        return None
    reward = facts.recent("reward").mean
    still = f", at a reward of {figure(reward)}" if reward is not None else ""
    return Finding(
        measured=f"Entropy fell from {figure(began)} nats per token at the start to {figure(now)} over "
        f"{span(min(recent.values), max(recent.values))}, {percent(now / began)} of it{still}.",
        advice="All completions of a group become alike, and the groups die. Start again from a checkpoint before the fall with "
        "a lower learning rate, a higher clip bound (algorithm.surrogate.epsilon_high) or an entropy bonus.",
        numbers={"entropy_at_start": began, "entropy_now": now},
        evidence=evidence((0, max(recent.values)), "entropy", "reward", step=max(recent.values)),
    )


RULE = Rule(
    code="entropy_collapse",
    title="Entropy has collapsed",
    words=f"mean entropy of the last {RECENT} steps is at most {percent(LEFT)} of that of the first {RECENT}, while the reward is "
    "below 90 % of the highest there is",
    check=check,
    metrics=("entropy", "reward"),
    steps=2 * RECENT,
)
