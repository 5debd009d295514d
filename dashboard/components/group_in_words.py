"""What a group's state means for the policy, in words that hold for the estimator of its run."""

from backend.contract.groups import Group
from dashboard.components.group_arithmetic import Estimator, all_equal, exact
from dashboard.format import number

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


def state_in_words(group: Group, how: Estimator) -> str:
    """One sentence or two, in Markdown."""
    if group.state == "filtered":
        return (
            "**Filtered:** sampled, then replaced by a group of another prompt (dynamic sampling), because no two of its rewards "
            "differed. Nothing here was trained on."
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
    if not all_equal(group):
        return (
            "**Alike but for the KL:** the task's rewards are all equal. What still differs is the KL penalty in the reward, and it "
            "is all that this group teaches: to stay near the reference."
        )
    reward = next((completion.reward for completion in group.completions if completion.reward is not None), None)
    if not how.centred:
        rest = _EQUAL[how.kind].format(mean=exact(group.reward_mean))
        return f"**All alike, yet trained on:** all {group.scored} scored completions got {number(reward)}; {rest}."
    if how.kind == "normalize_then_sum":
        return (
            "**Dead:** no reward function tells two of its completions apart, so every advantage is 0 and the policy is not moved "
            "by this group."
        )
    return (
        f"**Dead:** all {group.scored} scored completions got {number(reward)}, so nobody is better than the mean, "
        "every advantage is 0 and the policy is not moved by this group."
    )


def _too_few(group: Group, how: Estimator) -> str:
    if how.centred or not group.scored:
        return ", too few to compare, and the policy is not moved by this group"
    return ". What could be scored is trained on, since this estimator needs no other completion to compare with"
