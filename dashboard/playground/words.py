"""The Playground's sentences: what one sees, where it is from, and what the numbers of the moment mean."""

from collections.abc import Sequence

from backend.contract.advantage import Estimator
from backend.contract.groups import Group
from backend.contract.surrogate import Clip, Surrogate
from dashboard.algorithm.estimators import words_of
from dashboard.algorithm.rewards import exact
from dashboard.format import counted, signed
from dashboard.playground.curves import Traced

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


def reading(group: Group, chosen: Estimator) -> str:
    """What this group does to the policy, in a sentence or two."""
    if group.state == "unscored" and (chosen.centred or not group.scored):
        return "Fewer than two completions have a score, so there is nothing to compare: every advantage is exactly 0."
    words = words_of(chosen)
    if group.state == "live":
        equal = "Make all rewards equal and the group is dead: every advantage exactly 0."
        return f"{words.live} {equal if chosen.centred else 'Equal rewards would not make this group dead.'}"
    if not chosen.centred:
        return f"**All alike, yet trained on:** all rewards are equal; {words.equal.format(mean=exact(group.reward_mean))}."
    return (
        "**A dead group.** All rewards are equal, so nobody is better than the mean: every advantage is exactly 0, "
        "whether all were right or all wrong. Only a KL penalty or an entropy bonus in the loss would still move the policy."
    )


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
