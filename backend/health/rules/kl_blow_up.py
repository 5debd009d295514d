"""KL blow-up: the policy has left the reference for good."""

from backend.health.facts import RECENT, Facts
from backend.health.rule import Finding, Rule, evidence
from backend.health.stored import number
from backend.health.words import figure, span

NATS = 1.0


def check(facts: Facts) -> Finding | None:
    """The median, since one odd completion can make one step's estimate huge."""
    kl = facts.recent("kl")
    now = kl.median
    if now is None or abs(now) < NATS:
        return None
    beta = number(facts.config, "algorithm.kl.beta", 0.0)
    return Finding(
        measured=f"KL to the reference was {figure(now)} nats per token (median of {span(min(kl.values), max(kl.values))}), "
        f"with β = {beta:g}.",
        advice="So far from where it started, a model often loses its language. Read some completions. If they have broken down, "
        "start again from an earlier checkpoint with a lower learning rate or a larger algorithm.kl.beta.",
        numbers={"median_kl": now, "beta": beta},
        evidence=evidence(kl.values, "kl", "reward", step=kl.peak),
    )


RULE = Rule(
    code="kl_blow_up",
    title="KL has blown up",
    words=f"the median KL of the last {RECENT} steps is at least {NATS:g} nat per token",
    check=check,
    metrics=("kl",),
)
