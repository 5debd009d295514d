"""Group-relative advantages: what a completion is worth against its own siblings.

Rewards are (P, G): P groups of G completions. NaN marks a completion that nothing could score; it moves neither the
baseline nor the policy. A group with fewer than two scored members, or with equal rewards, is all zeros: exactly, since
float residue divided by a tiny std would blow up into a large advantage.
"""

from typing import Literal, NamedTuple

from array_api_compat import array_namespace

from worker.algorithms.arrays import Array

Std = Literal["population", "sample"]


class GroupStatistics(NamedTuple):
    """Per group, each of shape (P,): NaN where too few completions are scored to tell."""

    mean_P: Array
    std_P: Array
    scored_P: Array  # how many completions are scored
    live_P: Array  # True where two scored rewards differ: only such a group carries a signal


def group_statistics(rewards_P_G: Array, *, std: Std = "population") -> GroupStatistics:
    """Mean and standard deviation of each group over its scored completions."""
    xp = array_namespace(rewards_P_G)
    scored_P_G = ~xp.isnan(rewards_P_G)
    zero, nan = xp.zeros_like(rewards_P_G), xp.full_like(rewards_P_G, xp.nan)
    known_P_G = xp.where(scored_P_G, rewards_P_G, zero)
    count_P = xp.sum(xp.astype(scored_P_G, rewards_P_G.dtype), axis=-1)
    divisor_P = count_P if std == "population" else count_P - 1
    mean_P = xp.sum(known_P_G, axis=-1) / xp.where(count_P > 0, count_P, nan[..., 0])
    squares_P = xp.sum(xp.where(scored_P_G, (known_P_G - mean_P[..., None]) ** 2, zero), axis=-1)
    std_P = xp.sqrt(squares_P / xp.where(divisor_P > 0, divisor_P, nan[..., 0]))
    infinity = xp.full_like(rewards_P_G, xp.inf)
    lowest_P = xp.min(xp.where(scored_P_G, rewards_P_G, infinity), axis=-1)
    highest_P = xp.max(xp.where(scored_P_G, rewards_P_G, -infinity), axis=-1)
    return GroupStatistics(mean_P, std_P, count_P, highest_P > lowest_P)


def _over_live(rewards_P_G: Array, advantages_P_G: Array, groups: GroupStatistics) -> Array:
    xp = array_namespace(rewards_P_G)
    counted_P_G = ~xp.isnan(rewards_P_G) & groups.live_P[..., None]
    return xp.where(counted_P_G, advantages_P_G, xp.zeros_like(advantages_P_G))


def group_zscore(rewards_P_G: Array, *, std: Std, eps: float) -> Array:
    """Reward relative to its own group, in group standard deviations (DeepSeekMath, section 4.1.2). Returns (P, G)."""
    groups = group_statistics(rewards_P_G, std=std)
    zscores_P_G = (rewards_P_G - groups.mean_P[..., None]) / (groups.std_P[..., None] + eps)
    return _over_live(rewards_P_G, zscores_P_G, groups)


def group_center(rewards_P_G: Array) -> Array:
    """Reward relative to its group's mean, undivided (Dr. GRPO, arXiv:2503.20783). Returns (P, G)."""
    groups = group_statistics(rewards_P_G)
    return _over_live(rewards_P_G, rewards_P_G - groups.mean_P[..., None], groups)
