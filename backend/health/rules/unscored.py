"""Completions that no reward function could score."""

from backend.health.facts import RECENT, Facts
from backend.health.rule import Finding, Rule, evidence
from backend.health.stored import number
from backend.health.words import percent, span

SHARE = 0.01


def check(facts: Facts) -> Finding | None:
    """They are left out of baseline and loss: what could not be checked is not trained on."""
    unscored = facts.recent("frac_unscored")
    mean, peak = unscored.mean, unscored.peak
    if mean is None or peak is None or mean < SHARE:
        return None
    most = number(facts.config, "rewards.max_unscored", 0.2)
    whole = any(group.state == "unscored" and group.step == peak for group in facts.groups)
    return Finding(
        measured=f"{percent(mean)} of the completions of {span(min(unscored.values), max(unscored.values))} could not be scored, at most "
        f"{percent(unscored.finite[peak])} (step {peak}); above {percent(most)} in a step the run fails.",
        advice="Open one of them: its card shows the error of the reward function. A function that raises, hangs or returns no number "
        "leaves the completion out; mend the function, or raise rewards.time_limit where it ran out of time.",
        numbers={"mean_share": mean, "max_unscored": most},
        evidence=evidence(unscored.values, "frac_unscored", step=peak, state="unscored" if whole else None),
    )


RULE = Rule(
    code="unscored",
    title="Completions could not be scored",
    words=f"on average over the last {RECENT} steps at least {percent(SHARE)} of the completions got no score",
    check=check,
    metrics=("frac_unscored",),
    steps=1,
)
