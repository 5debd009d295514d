"""A gradient that is clipped at nearly every step: the bound, and not its size, says how far each step goes."""

from backend.health.facts import Facts
from backend.health.rule import Finding, Rule, evidence
from backend.health.stored import number
from backend.health.words import figure, span

SHARE, STEPS = 0.9, 20


def check(facts: Facts) -> Finding | None:
    """Harmless with Adam, which scales by itself; but batches with a strong signal count no more than others."""
    norms = facts.history["grad_norm"].last(STEPS)
    limit, usual = number(facts.config, "optimizer.max_grad_norm", 1.0), norms.median
    clipped = [value for value in norms.finite.values() if value > limit]
    if usual is None or len(clipped) < SHARE * len(norms):
        return None
    return Finding(
        measured=f"In {len(clipped)} of the {len(norms)} {span(min(norms.values), max(norms.values))} the gradient was longer than "
        f"max_grad_norm = {limit:g}; its median length was {figure(usual)}.",
        advice="Not wrong in itself: each step is as long as any other, whatever its batch had to say. If the reward jumps or falls, "
        "lower the learning rate; if it rises, leave it, or raise optimizer.max_grad_norm above the median.",
        numbers={"clipped_steps": len(clipped), "steps": len(norms), "median_grad_norm": usual, "max_grad_norm": limit},
        evidence=evidence(norms.values, "grad_norm", "reward", step=norms.peak),
        level="note",
    )


RULE = Rule(
    code="gradient_clipped",
    title="The gradient is clipped nearly always",
    words=f"grad_norm is above max_grad_norm in at least 90 % of the last {STEPS} steps",
    check=check,
    metrics=("grad_norm",),
    steps=STEPS,
)
