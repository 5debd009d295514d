"""One reward component decides alone, though its weight does not say so."""

from collections.abc import Mapping

from backend.health.facts import RECENT, Facts
from backend.health.rule import Finding, Rule, evidence
from backend.health.stored import bounded, weights
from backend.health.words import figure, percent, span

SHARE, WEIGHT = 0.9, 0.5
DONE = 0.95  # the mean score of a component that has nothing left to say; 1 − it where the weight is a penalty


def check(facts: Facts) -> Finding | None:
    """GRPO sees differences only: a component moves the policy by weight × std, not by its weight."""
    weighing = weights(facts.config)
    spread = _variances(facts, weighing)
    total = sum(spread.values())
    if len(weighing) < 2 or total == 0:
        return None
    name = max(spread, key=lambda each: spread[each])
    share, weight = spread[name] / total, abs(weighing[name]) / sum(map(abs, weighing.values()))
    silent = [other for other in weighing if other != name and not _done(facts, other, weighing[other])]
    if share < SHARE or weight > WEIGHT or not silent:
        return None
    stretch = facts.recent(f"rewards/{name}/std")
    means = ", ".join(f"{other} {figure(facts.recent(f'rewards/{other}/mean').mean or 0.0)}" for other in silent)
    return Finding(
        title=f"The reward {name} decides alone",
        measured=f"Over {span(min(stretch.values), max(stretch.values))} {percent(share)} of the reward's variance came from {name}, "
        f"which has {percent(weight)} of the weight. Mean scores of the others: {means}.",
        advice=f"The run learns {name} and hardly anything else. If the others are always 0, the task is too hard, or they do not "
        f"recognise what is right. Else bring the scores to one scale, lower the weight of {name}, or normalise each reward by "
        "itself (advantage normalize_then_sum).",
        numbers={"variance_share": share, "weight_share": weight},
        evidence=evidence(
            stretch.values, *(f"rewards/{each}/std" for each in (name, *silent)), step=max(stretch.values)
        ),
    )


def _variances(facts: Facts, weighing: Mapping[str, float]) -> dict[str, float]:
    """Mean of (weight × std)² over the recent steps, by name; in units of the largest std, since squares of large floats are infinite."""
    stds = {name: list(facts.recent(f"rewards/{name}/std").finite.values()) for name in weighing}
    unit = max((abs(std) for of_name in stds.values() for std in of_name), default=0.0) or 1.0
    return {
        name: sum((weighing[name] * (std / unit)) ** 2 for std in of_name) / len(of_name) if of_name else 0.0
        for name, of_name in stds.items()
    }


def _done(facts: Facts, name: str, weight: float) -> bool:
    """Whether its mean score is as good as it gets: near 1, or near 0 where the weight makes it a penalty."""
    mean = facts.recent(f"rewards/{name}/mean").mean
    if mean is None or not bounded(facts.config, name):
        return False
    return mean >= DONE if weight > 0 else mean <= 1 - DONE


RULE = Rule(
    code="component_dominates",
    title="One reward decides alone",
    words=f"over the last {RECENT} steps one component brings at least {percent(SHARE)} of the sum of (weight × std)² with at most "
    f"{percent(WEIGHT)} of the weight, while another one has a mean score below {DONE:g} (a penalty: above {1 - DONE:.2g})",
    check=check,
    metrics=("reward",),
)
