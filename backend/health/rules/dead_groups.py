"""Dead groups: all rewards of a group are equal, so that it says nothing about what is better."""

from collections.abc import Sequence

from backend.contract.advantage import ESTIMATORS
from backend.contract.reward_bound import reward_bound
from backend.health.facts import RECENT, Facts, GroupFact
from backend.health.rule import Finding, Rule, evidence
from backend.health.rules.all_rewards_zero import nothing_is_rewarded
from backend.health.stored import number, text
from backend.health.words import figure, percent, span

MOST = 0.5
WELL = 0.8  # of the highest reward: then groups die of being all right, and that is no fault
RIGHT = 0.95  # of the highest reward: a KL penalty in the reward takes a little off


def check(facts: Facts) -> Finding | None:
    """A warning while there is something left to learn; a note where the groups are dead because the task is solved."""
    share = facts.recent("frac_reward_zero_std")
    mean, peak = share.mean, share.peak
    estimator = ESTIMATORS.get(text(facts.config, "algorithm.advantage.kind"))
    if estimator is None or estimator.compares != "group" or nothing_is_rewarded(facts):
        return None
    if mean is None or peak is None or mean < MOST:
        return None
    dead = [group for group in facts.groups if group.state == "zero_variance" and group.reward_mean is not None]
    right = _right(facts, dead)
    solved = facts.solved(WELL)
    measured = f"{percent(mean)} of the groups of {span(min(share.values), max(share.values))} were dead"
    size = int(number(facts.config, "sampling.group_size", 0))
    return Finding(
        title="Most groups are solved" if solved else None,
        level="note" if solved else "warning",
        measured=f"{measured}{_what_they_got(dead, right)}.",
        advice=_advice(solved=solved, size=size),
        numbers={"mean_share": mean, "dead_groups": len(dead), "dead_all_right": len(right)},
        evidence=evidence(share.values, "frac_reward_zero_std", "reward", step=peak, state="zero_variance"),
    )


def _right(facts: Facts, dead: Sequence[GroupFact]) -> list[GroupFact]:
    highest = reward_bound(facts.config)
    if highest is None:
        return []
    return [group for group in dead if group.reward_mean is not None and group.reward_mean >= RIGHT * highest]


def _what_they_got(dead: Sequence[GroupFact], right: Sequence[GroupFact]) -> str:
    """How many of them were all right; what the others got."""
    if not dead:
        return ""
    others = [group.reward_mean for group in dead if group not in right and group.reward_mean is not None]
    if not others:
        return f"; in all {len(dead)} of them every completion was right"
    got = figure(min(others)) if min(others) == max(others) else f"{figure(min(others))} to {figure(max(others))}"
    if not right:
        return f"; in all {len(dead)} of them no completion got the highest reward (all equal, at {got})"
    return f": in {len(right)} every completion was right, in {len(others)} none got the highest reward (all equal, at {got})"


def _advice(*, solved: bool, size: int) -> str:
    if solved:
        return "The model has learned most of what these prompts can teach. Stop here, or go on with harder prompts."
    return (
        f"Draw larger groups (sampling.group_size, now {size}), so that one completion differs more often; take prompts of middling "
        "difficulty; or replace dead groups while sampling (algorithm.dead_groups: resample)."
    )


RULE = Rule(
    code="dead_groups",
    title="Most groups are dead",
    words=f"on average over the last {RECENT} steps at least {percent(MOST)} of the groups have equal rewards; only a note where the "
    f"mean reward of these steps is at least {percent(WELL)} of the highest there is",
    check=check,
    metrics=("frac_reward_zero_std",),
)
