"""Adapters at the rate of full training: nothing moves."""

from backend.health.facts import RECENT, Facts
from backend.health.rule import Finding, Rule, evidence
from backend.health.stored import at, number
from backend.health.words import figure, rate, span
from backend.preflight.hints import LORA_RATE_LOW

RISEN = 0.5  # of the rewards' std at the start: then it learns, whatever its rate


def check(facts: Facts) -> Finding | None:
    """From the configuration, unless the run has proved that it learns."""
    learning_rate = number(facts.config, "optimizer.learning_rate", 1.0)
    if at(facts.config, "model.lora") is None or learning_rate > LORA_RATE_LOW:
        return None
    recent, earlier, std = facts.recent("reward"), facts.began("reward").mean, facts.began("reward_std").mean
    now = recent.mean
    if now is not None and earlier is not None and std is not None and (facts.solved() or now - earlier >= RISEN * std):
        return None
    measured = f"LoRA of rank {number(facts.config, 'model.lora.rank', 0):g} is trained at {rate(learning_rate)}"
    if now is not None and earlier is not None:
        went = f"the reward went from {figure(earlier)} to {figure(now)}"
        measured += f"; {went} ({span(min(recent.values), max(recent.values))})"
    return Finding(
        measured=f"{measured}.",
        advice=f"Adapters start at 0 and want about 10 times the rate of full training: clone the run with {rate(10 * learning_rate)}.",
        numbers={"learning_rate": learning_rate, "limit": LORA_RATE_LOW},
        evidence=evidence(recent.values, "reward", "learning_rate", step=max(recent.values)) if len(recent) else None,
    )


RULE = Rule(
    code="lora_rate",
    title="The learning rate is low for LoRA",
    words=f"an adapter is trained at {rate(LORA_RATE_LOW)} or less, and the reward of the last {RECENT} steps is not above that of the "
    f"first {RECENT} by {RISEN:g} of its std",
    check=check,
)
