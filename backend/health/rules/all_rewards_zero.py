"""Nothing is ever right: no completion of the last steps got any reward, or none gets one any more."""

from itertools import takewhile

from backend.health.facts import HISTORY, NOTHING, RECENT, Facts
from backend.health.rule import Finding, Rule, evidence
from backend.health.stored import number
from backend.health.stretch import Stretch
from backend.health.words import figure, rate, span

IN_A_ROW = 3


def nothing_is_rewarded(facts: Facts) -> bool:
    """Whether each reward of the last steps was 0; the rule on dead groups leaves this to the rule here."""
    last = [facts.recent(name).last(IN_A_ROW) for name in ("reward", "reward_std")]
    return all(len(one) == IN_A_ROW and not any(one.values.values()) and not one.missing for one in last)


def check(facts: Facts) -> Finding | None:
    """Rewards that are all 0 teach nothing, and nothing will change by itself. Where they fell to 0, something broke."""
    if not nothing_is_rewarded(facts):
        return None
    steps, before = _zeros(facts.history["reward"]), _before(facts)
    fell = before.peak if (before.median or 0.0) > 0 else None
    was = "" if fell is None else f" At step {fell} it was {figure(before.finite[fell])}."
    kl = () if fell is None or "kl" not in facts.history else ("kl",)
    return Finding(
        title=None if fell is None else "The reward has collapsed to 0",
        measured=f"The reward was 0 for every scored completion of {span(steps[0], steps[-1])}.{was}",
        advice=_NEVER if fell is None else _collapsed(facts),
        numbers={"steps_at_zero": len(steps)},
        evidence=evidence(steps, "reward", *kl, "reward_std", step=steps[-1], state="zero_variance"),
    )


_NEVER = (
    "Open a group and read what the model answers. If it is right, the reward function does not recognise it: "
    "check its format and the reference answer. If it is wrong, start with easier prompts, show the format in the system "
    "prompt, or add a reward for a part of the task (the format)."
)


def _collapsed(facts: Facts) -> str:
    learning_rate, beta = (number(facts.config, path, 0.0) for path in ("optimizer.learning_rate", "algorithm.kl.beta"))
    return (
        "The model could do it, so the prompts are not too hard. Look at KL and gradient norm where the reward fell, and read "
        "completions of those steps. If they have broken down, start again from an earlier checkpoint with a lower learning rate "
        f"(now {rate(learning_rate)}) or a larger algorithm.kl.beta (now {beta:g}). If they are as good as before, look at what "
        "scores them."
    )


def _zeros(reward: Stretch) -> list[int]:
    """The steps since which it has been 0."""
    return sorted(takewhile(lambda step: reward.values[step] == 0, sorted(reward.values, reverse=True)))


def _before(facts: Facts) -> Stretch:
    """The reward until it was last above 0, over all steps that were read."""
    known = Stretch({**facts.start.get("reward", NOTHING).values, **facts.history["reward"].values})
    zeros = set(_zeros(known))
    return Stretch({step: value for step, value in known.values.items() if step not in zeros})


RULE = Rule(
    code="all_rewards_zero",
    title="Every reward is 0",
    words=f"reward and its std are exactly 0 in each of the last {IN_A_ROW} steps; a collapse where, over the first {RECENT} and the "
    f"last {HISTORY} steps, the median reward before was above 0",
    check=check,
    metrics=("reward", "reward_std"),
    steps=IN_A_ROW,
)
