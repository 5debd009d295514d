"""What a group's state means for the policy, in words that hold for the estimator of its run."""

import math
from statistics import fmean

from backend.contract.groups import Group
from dashboard.format import number
from dashboard.group.arithmetic import Estimator, all_equal, exact

_LIVE = {
    "softmax": "Each completion gets a weight, all of them together 1: none is discouraged, a better one is reinforced more.",
    "none": "Nothing is compared: a reward above 0 reinforces its completion, one below 0 discourages it.",
    "batch_baseline": "Each completion is compared with the mean of the whole batch: above it is reinforced, below it discouraged.",
    "normalize_then_sum": "Each reward function is compared within the group by itself, then they are weighted and added up.",
    "best_worst": "The best completion is reinforced, the worst discouraged; the others are left as they are.",
    "gae": "Each token is compared with what the value head expected there: better is reinforced, worse discouraged.",
}
_EQUAL = {
    "softmax": "each weighs the same, and the policy is drawn to all of them alike",
    "none": "the advantage is the reward itself, and the policy is still moved unless that is 0",
    "batch_baseline": "they are compared with the whole batch, whose mean was {mean}, and the policy is still moved unless they "
    "lie on it",
    "gae": "their tokens are compared with the value head, and the policy is still moved",
}


def state_in_words(group: Group, how: Estimator, *, highest: float | None = None) -> str:
    """One sentence or two, in Markdown. `highest` is the most that a completion of this run can get, where that is known."""
    if group.state == "filtered":
        return (
            f"**Filtered:** {_same(group, 'no two of its rewards differed', highest)}, so dynamic sampling replaced it by a group of "
            "another prompt. Nothing here was trained on."
        )
    if group.state == "probe":
        return (
            f"**Probe:** a fixed prompt, sampled again every so many steps to see how the policy changes and never trained on. "
            f"Here {_scored(group)}."
        )
    if group.state == "unscored":
        return (
            f"**Unscored:** only {group.scored} of {len(group.completions)} completions could be scored{_too_few(group, how)}; the "
            "errors stand at the completions."
        )
    if group.state == "live":
        return _LIVE.get(
            how.kind,
            "Each completion is compared with its own group: above the mean it is reinforced, below it is discouraged.",
        )
    return _equal_in_words(group, how, highest)


def _equal_in_words(group: Group, how: Estimator, highest: float | None) -> str:
    if not all_equal(group):
        return (
            "**Alike but for the KL:** the task's rewards are all equal. What still differs is the KL penalty in the reward, and it "
            "is all that this group teaches: to stay near the reference."
        )
    same = _same(group, "all rewards are equal", highest)
    if not how.centred:
        return f"**All alike, yet trained on:** {same}; {_EQUAL[how.kind].format(mean=exact(group.reward_mean))}."
    if how.kind == "normalize_then_sum":
        return (
            "**Dead:** no reward function tells two of its completions apart, so every advantage is 0 and the policy is not moved "
            "by this group."
        )
    return f"**Dead:** {same}, so nobody is better than the mean, every advantage is 0 and the policy is not moved by this group."


def _same(group: Group, otherwise: str, highest: float | None) -> str:
    """all 8 scored completions got 1.00, the most there is (all right)."""
    rewards = {completion.reward for completion in group.completions if completion.reward is not None}
    if len(rewards) != 1:
        return otherwise
    reward = rewards.pop()
    right = highest is not None and math.isclose(reward, highest, abs_tol=1e-6)
    meant = (
        ", the most there is (all right)" if right else " (all wrong)" if highest is not None and reward == 0 else ""
    )
    return f"all {group.scored} scored completions got {number(reward)}{meant}"


def _scored(group: Group) -> str:
    rewards = [completion.reward for completion in group.completions if completion.reward is not None]
    whole = len(group.completions)
    return (
        f"{len(rewards)} of {whole} completions were scored, {number(fmean(rewards))} on average"
        if rewards
        else f"none of {whole} completions was scored"
    )


def _too_few(group: Group, how: Estimator) -> str:
    if how.centred or not group.scored:
        return ", too few to compare, and the policy is not moved by this group"
    return ". What could be scored is trained on, since this estimator needs no other completion to compare with"
