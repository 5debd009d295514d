"""Nothing is ever right: no completion of the last steps got any reward."""

from itertools import takewhile

from backend.health.facts import Facts
from backend.health.rule import Finding, Rule, evidence
from backend.health.words import span

IN_A_ROW = 3


def nothing_is_rewarded(facts: Facts) -> bool:
    """Whether each reward of the last steps was 0; the rule on dead groups leaves this to the rule here."""
    last = [facts.recent(name).last(IN_A_ROW) for name in ("reward", "reward_std")]
    return all(len(one) == IN_A_ROW and not any(one.values.values()) and not one.missing for one in last)


def check(facts: Facts) -> Finding | None:
    """Groups whose rewards are all 0 teach nothing, and nothing will change by itself."""
    if not nothing_is_rewarded(facts):
        return None
    rewards = facts.history["reward"].values
    steps = sorted(takewhile(lambda step: rewards[step] == 0, sorted(rewards, reverse=True)))
    return Finding(
        measured=f"The reward was 0 for every scored completion of {span(steps[0], steps[-1])}.",
        advice="Open a group and read what the model answers. If it is right, the reward function does not recognise it: "
        "check its format and the reference answer. If it is wrong, start with easier prompts, show the format in the system "
        "prompt, or add a reward for a part of the task (the format).",
        numbers={"steps_at_zero": len(steps)},
        evidence=evidence(steps, "reward", "reward_std", step=steps[-1], state="zero_variance"),
    )


RULE = Rule(
    code="all_rewards_zero",
    title="Every reward is 0",
    words=f"reward and its std are exactly 0 in each of the last {IN_A_ROW} steps",
    check=check,
    metrics=("reward", "reward_std"),
    steps=IN_A_ROW,
)
