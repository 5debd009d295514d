"""The most asked question of all: the loss is 0, is it broken?"""

from backend.health.facts import RECENT, Facts
from backend.health.rule import Finding, Rule, evidence
from backend.health.stored import number, text
from backend.health.words import figure, span
from backend.preflight.hints import CENTRED

SMALL = 0.01


def check(facts: Facts) -> Finding | None:
    """On policy the ratio is 1 and centred advantages add up to 0, so the value is 0; its gradient is not."""
    loss, gradient, beta = facts.recent("loss"), facts.recent("grad_norm").median, _beta(facts)
    kl = facts.recent("kl").finite
    rest = {step: value - beta * kl.get(step, 0.0) for step, value in loss.finite.items()}
    largest = max(map(abs, rest.values()), default=None)
    if largest is None or largest >= SMALL or not gradient or not _expected(facts):
        return None
    apart = f", apart from the KL penalty ({beta:g} × KL)," if beta else ""
    return Finding(
        measured=f"Over {span(min(loss.values), max(loss.values))} the loss{apart} stayed below {SMALL:g} in size, while the gradient "
        f"norm was {figure(gradient)} (median): the policy is being trained.",
        advice="Nothing needs to be done. Watch the reward and the gradient norm; this loss does not measure progress.",
        numbers={"largest_loss": largest, "median_grad_norm": gradient},
        evidence=evidence(loss.values, "loss", "grad_norm"),
        level="note",
    )


def _beta(facts: Facts) -> float:
    """The weight of the KL in the loss."""
    in_the_loss = text(facts.config, "algorithm.kl.placement") == "loss"
    return number(facts.config, "algorithm.kl.beta", 0.0) if in_the_loss else 0.0


def _expected(facts: Facts) -> bool:
    return (
        text(facts.config, "algorithm.surrogate.kind") == "clip"
        and text(facts.config, "algorithm.advantage.kind") in CENTRED
        and number(facts.config, "algorithm.updates_per_batch", 1) == 1
    )


RULE = Rule(
    code="loss_near_zero",
    title="The loss is about 0, and that is as it should be",
    words=f"with one update per batch, the clipped surrogate and advantages that add up to 0 in each group, each loss of the "
    f"last {RECENT} steps, less its KL penalty, is below {SMALL:g} in size, and the gradient is not 0",
    check=check,
    metrics=("loss", "grad_norm"),
    steps=3,
)
