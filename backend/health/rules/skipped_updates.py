"""Updates that were not applied because their gradient was not finite."""

from backend.health.facts import HISTORY, Facts
from backend.health.rule import Finding, Rule, evidence


def check(facts: Facts) -> Finding | None:
    """The weights are as they were; but numbers that overflow once mostly do so again."""
    skipped = facts.history["grad_norm"].missing
    if not skipped:
        return None
    named = ", ".join(map(str, skipped[-5:]))
    return Finding(
        measured=f"In {len(skipped)} of the last {len(facts.history['grad_norm'])} steps the gradient was not finite (NaN or infinite), "
        f"and the update was not applied: {'…, ' if len(skipped) > 5 else ''}{named}.",
        advice="Open the groups of such a step and look for broken or very long texts. If it comes again, lower the learning rate, "
        "or train in float32 (model.dtype); after three in a row the run ends by itself.",
        numbers={"skipped_steps": len(skipped)},
        evidence=evidence(skipped, "grad_norm", "loss", "learning_rate", step=skipped[-1]),
    )


RULE = Rule(
    code="skipped_updates",
    title="Updates were skipped",
    words=f"grad_norm was not finite in one of the last {HISTORY} steps",
    check=check,
    metrics=("grad_norm",),
    steps=1,
)
