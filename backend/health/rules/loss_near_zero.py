"""The most asked question of all: the loss is 0, is it broken?"""

from backend.contract.advantage import ESTIMATORS
from backend.health.facts import RECENT, Facts
from backend.health.rule import Finding, Rule, evidence
from backend.health.rules import all_rewards_zero, entropy_collapse, kl_blow_up
from backend.health.stored import number, text
from backend.health.words import figure, percent, span

SMALL = 0.01
LEFT = 0.01  # of the gradient at the start: below it there is hardly anything left that trains
BROKEN = (all_rewards_zero.RULE, kl_blow_up.RULE, entropy_collapse.RULE)


def check(facts: Facts) -> Finding | None:
    """On policy the ratio is 1 and centred advantages add up to 0, so the value is 0; its gradient is not."""
    loss, gradient = facts.recent("loss"), facts.recent("grad_norm").median
    began = facts.began("grad_norm").median
    largest = max(map(abs, loss.finite.values()), default=None)
    if largest is None or largest >= SMALL or not gradient or not _expected(facts):
        return None
    if gradient < LEFT * (began or 0.0) or any(rule.hint(facts) for rule in BROKEN):
        return None
    earlier = f", and {figure(began)} in the first {RECENT} steps" if began else ""
    return Finding(
        measured=f"Over {span(min(loss.values), max(loss.values))} the loss stayed below {SMALL:g} in size, while the gradient "
        f"norm was {figure(gradient)} (median{earlier}): the policy is being trained.",
        advice="Nothing needs to be done. Watch the reward and the gradient norm; this loss does not measure progress.",
        numbers={"largest_loss": largest, "median_grad_norm": gradient},
        evidence=evidence(loss.values, "loss", "grad_norm"),
        level="note",
    )


def _expected(facts: Facts) -> bool:
    estimator = ESTIMATORS.get(text(facts.config, "algorithm.advantage.kind"))
    return (
        text(facts.config, "algorithm.surrogate.kind") == "clip"
        and estimator is not None
        and estimator.centred
        and number(facts.config, "algorithm.updates_per_batch", 1) == 1
    )


RULE = Rule(
    code="loss_near_zero",
    title="The loss is about 0, and that is as it should be",
    words=f"with one update per batch, the clipped surrogate and advantages that add up to 0 in each group, each loss of the "
    f"last {RECENT} steps is below {SMALL:g} in size, and the median gradient norm of these steps is not 0 and at least "
    f"{percent(LEFT)} of that of the first {RECENT}; silent where the rewards are all 0, KL has blown up or entropy has collapsed",
    check=check,
    metrics=("loss", "grad_norm"),
    steps=3,
)
