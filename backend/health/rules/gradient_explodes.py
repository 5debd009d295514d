"""Exploding gradient: much larger than the run's own, again and again."""

from backend.health.facts import RECENT, Facts
from backend.health.rule import Finding, Rule, evidence
from backend.health.stored import number
from backend.health.stretch import Stretch
from backend.health.words import figure

TIMES, STEPS, BEFORE = 10.0, 3, 10


def check(facts: Facts) -> Finding | None:
    """One spike is clipped and forgotten; several point to a run that is falling apart. A gradient of 0 is none."""
    norms = {step: value for step, value in facts.history["grad_norm"].finite.items() if value > 0}
    recent = {step: value for step, value in norms.items() if step >= facts.step - RECENT}
    usual = Stretch({step: value for step, value in norms.items() if step not in recent})
    limit = number(facts.config, "optimizer.max_grad_norm", 1.0)
    if len(usual) < BEFORE or usual.median is None:
        return None
    large = {step: value for step, value in recent.items() if value > max(TIMES * usual.median, limit)}
    if len(large) < STEPS:
        return None
    return Finding(
        measured=f"In {len(large)} of the last {RECENT} steps the gradient norm was above {figure(TIMES * usual.median)}, up to "
        f"{figure(max(large.values()))}; the median of the {len(usual)} steps before is {figure(usual.median)}.",
        advice=f"Each of them was scaled down to max_grad_norm = {limit:g}, but points where a broken batch points. Look at the "
        "groups of the largest: long, broken texts or odd rewards are the usual cause. If it goes on, start again from an earlier "
        "checkpoint with a lower learning rate.",
        numbers={"largest": max(large.values()), "usual_median": usual.median, "steps": len(large)},
        evidence=evidence(recent, "grad_norm", step=max(large, key=lambda step: large[step])),
    )


RULE = Rule(
    code="gradient_explodes",
    title="The gradient explodes",
    words=f"in at least {STEPS} of the last {RECENT} steps grad_norm is above max_grad_norm and above {TIMES:g} times the median of "
    "the up to 40 steps before",
    check=check,
    metrics=("grad_norm",),
)
