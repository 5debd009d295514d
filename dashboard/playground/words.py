"""The Playground's sentences: what one sees, where it is from, and what the numbers of the moment mean."""

from collections.abc import Sequence

from backend.contract.groups import Group
from backend.contract.surrogate import Clip, Surrogate
from dashboard.format import counted, signed
from dashboard.group.arithmetic import Estimator, exact
from dashboard.playground.curves import Traced

ESTIMATORS = {
    "group_zscore": "Reward minus the group's mean, in standard deviations of the group (GRPO).",
    "group_center": "Reward minus the group's mean, undivided (Dr. GRPO): a group that nearly agrees is not blown up.",
    "softmax": "e^reward, shared out over the group: weights that add up to 1, none negative.",
    "leave_one_out": "Reward minus the mean of the other completions (RLOO).",
    "batch_std": "Reward minus the group's mean, in standard deviations of the whole batch: groups keep their relative size.",
    "batch_baseline": "Reward minus the mean of the whole batch (REINFORCE with a baseline): an easy group is reinforced as a whole.",
    "none": "The reward itself (vanilla policy gradient): with rewards of 0 and 1, nothing is ever discouraged.",
    "normalize_then_sum": "Each reward function z-scored in the group, weighted, added, z-scored again (GDPO): no function drowns another.",
    "best_worst": "+1 for the best, −1 for the worst, 0 for the rest: the pair that DPO would be given.",
}
SURROGATES = {
    "clip": "min(r·A, clip(r, 1 − ε, 1 + ε)·A), from PPO and GRPO. Where the line is flat the gradient is 0: the "
    "token has moved far enough in the direction that its advantage wants.",
    "cispo": "min(r, cap)·A·log p, the weight without gradient (CISPO). No token falls silent: beyond the cap it only pulls no harder.",
    "sapo": "4/τ · sigmoid(τ(r − 1)) · A (SAPO): clipping as a soft gate. The pull fades on both sides instead of ending at an edge.",
    "vespo": "φ(r)·A·log p, φ(r) = e^λ r^k e^(−λr) without gradient (VESPO): full pull on policy, fading to either side.",
    "policy_gradient": "A·log p, no ratio and no clipping (vanilla policy gradient; with softmax weights, a weighted likelihood). "
    "Nothing ever holds a token back.",
}
CONSTANT_WEIGHT = "The left curve is the number that the trainer computes; only log p in it has a gradient, so read the pull on the right."


def group_in_a_line(group: Group) -> str:
    """8 completions: 4 × 1, 4 × 0."""
    known = [completion.reward for completion in group.completions if completion.reward is not None]
    values = sorted(set(known), reverse=True)
    parts = (
        [f"{known.count(value)} × {exact(value)}" for value in values]
        if len(values) <= 4
        else [f"rewards from {exact(values[-1])} to {exact(values[0])}"]
    )
    if len(known) < len(group.completions):
        parts.append(f"{len(group.completions) - len(known)} unscored")
    return f"{counted(len(group.completions), 'completion')}: {', '.join(parts)}"


def reading(group: Group, how: Estimator) -> str:
    """What this group does to the policy, in a sentence or two."""
    if group.state == "unscored" and (how.centred or not group.scored):
        return "Fewer than two completions have a score, so there is nothing to compare: every advantage is exactly 0."
    if group.state != "live":
        return _EQUAL.get(how.kind, _DEAD)
    return _LIVE.get(how.kind, _COMPARED)


_DEAD = (
    "**A dead group.** All rewards are equal, so nobody is better than the mean: every advantage is exactly 0, "
    "whether all were right or all wrong. Only a KL penalty or an entropy bonus in the loss would still move the policy."
)
_COMPARED = (
    "Blue is reinforced, orange discouraged. Make all rewards equal and the group is dead: every advantage exactly 0."
)
_EQUAL = {
    "softmax": "All rewards are equal, and each weight is 1/G. Unlike a z-score this is no dead group: the policy is drawn to all "
    "of them alike.",
    "none": "All rewards are equal, and each advantage is that reward: unless it is 0, all are pushed alike.",
    "batch_baseline": "All rewards are equal, yet this group may lie above or below the batch's mean: then it is still trained on.",
}
_LIVE = {
    "softmax": "Nothing is orange: a wrong completion is reinforced too, only less. The weights add up to 1.",
    "none": "A reward above 0 reinforces its completion, whatever the others got; 0 leaves it alone.",
    "batch_baseline": "Blue is above the mean of the whole batch, orange below. Equal rewards would not make this group dead.",
    "best_worst": "Only two completions count, the first of the best and the first of the worst.",
}


def ratio_in_a_line(surrogate: Surrogate, new: float, old: float) -> str:
    """0.9 / 0.5 = 1.8 → clipped to 1.2."""
    ratio = new / old
    start = f"ratio = {new:g} / {old:g} = **{ratio:.4g}**"
    if not isinstance(surrogate, Clip):
        return start
    low, high = 1 - surrogate.epsilon_low, 1 + surrogate.epsilon_high
    clipped = min(max(ratio, low), high)
    return f"{start} → {'clipped to' if clipped != ratio else 'within the range, stays'} **{clipped:.4g}**"


def pull_in_words(pulls: Sequence[tuple[str, float, Traced]]) -> str:
    """Whether the gradient still pulls at the point, for each advantage that is drawn."""
    parts = []
    for name, advantage, traced in pulls:
        if advantage == 0:
            parts.append(f"{name}: no pull, A is 0")
        elif abs(traced.at) < 1e-9:
            parts.append(f"{name}: **no pull**, the gradient is cut off")
        else:
            parts.append(f"{name}: pulled **{'up' if traced.at > 0 else 'down'}** with {signed(traced.at)}")
    return " · ".join(parts)


def on_policy(group: Group) -> str:
    """Why the loss of a first update reads 0."""
    start = "Old = new: in the first update on a batch the ratio is exactly 1 and nothing is clipped."
    advantages = [completion.advantage or 0.0 for completion in group.completions]
    if any(advantages) and abs(sum(advantages)) < 1e-6:
        return f"{start} The advantages add up to 0, so **the loss reads 0, yet each token is pulled by its A**: nothing is broken."
    return start
