"""Advantages of whole completions: what each is worth against its siblings, the batch, or nothing.

Rewards are (P, G): P groups of G completions. NaN marks a completion that nothing could score: it moves no baseline and
gets 0. The estimators that are centred on the group's mean, and `best_worst`, give zeros to a group with fewer than two
scored members or with equal rewards: exactly, since float residue divided by a tiny std would blow up into a large
advantage. Rewards are equal up to rounding: 0.3 × 1 is what 0.1 × 1 + 0.2 × 1 is.
"""

from typing import NamedTuple

from array_api_compat import array_namespace, device

from backend.contract.advantage import Std
from backend.contract.groups import GroupState
from worker.algorithms.arrays import Array

_ROUNDING = 16  # units in the last place, of the largest reward or of 1: what a few sums and products may leave


class GroupStatistics(NamedTuple):
    """Per group, each of shape (P,): NaN where too few completions are scored to tell."""

    mean_P: Array
    std_P: Array  # exactly 0 where all scored rewards are equal
    scored_P: Array  # how many completions are scored
    live_P: Array  # True where two scored rewards differ by more than rounding: only such a group carries a signal


def group_statistics(rewards_P_G: Array, *, std: Std = "population") -> GroupStatistics:
    """Mean and standard deviation of each group over its scored completions."""
    xp = array_namespace(rewards_P_G)
    scored_P_G = ~xp.isnan(rewards_P_G)
    zero, nan = xp.zeros_like(rewards_P_G), xp.full_like(rewards_P_G, xp.nan)
    known_P_G = xp.where(scored_P_G, rewards_P_G, zero)
    count_P = xp.sum(xp.astype(scored_P_G, rewards_P_G.dtype), axis=-1)
    divisor_P = count_P if std == "population" else count_P - 1
    mean_P = xp.sum(known_P_G, axis=-1) / xp.where(count_P > 0, count_P, nan[..., 0])
    infinity = xp.full_like(rewards_P_G, xp.inf)
    lowest_P = xp.min(xp.where(scored_P_G, rewards_P_G, infinity), axis=-1)
    highest_P = xp.max(xp.where(scored_P_G, rewards_P_G, -infinity), axis=-1)
    largest_P = xp.max(xp.where(scored_P_G, xp.abs(rewards_P_G), xp.ones_like(rewards_P_G)), axis=-1)
    step_P = xp.finfo(rewards_P_G.dtype).eps * xp.where(largest_P > 1, largest_P, xp.ones_like(largest_P))
    live_P = highest_P - lowest_P > _ROUNDING * step_P
    deviations_P_G = xp.where(scored_P_G & live_P[..., None], known_P_G - mean_P[..., None], zero)
    squares_P = xp.sum(deviations_P_G**2, axis=-1)
    std_P = xp.sqrt(squares_P / xp.where(divisor_P > 0, divisor_P, nan[..., 0]))
    return GroupStatistics(mean_P, std_P, count_P, live_P)


def group_state(*, scored: float, live: bool, size: int) -> GroupState:
    """A group carries a signal if two scored rewards differ; one with fewer than two scored, of several, cannot be judged."""
    if live:
        return "live"
    return "zero_variance" if scored >= min(2, size) else "unscored"


def batch_statistics(rewards_P_G: Array) -> GroupStatistics:
    """The same with the whole batch as the one group, and its std with Bessel's correction: each field of shape (1,)."""
    return group_statistics(array_namespace(rewards_P_G).reshape(rewards_P_G, (1, -1)), std="sample")


def live_by_component(rewards_P_G_K: Array, weights_K: Array, *, partial: bool = False) -> Array:
    """True for each group where a reward function with a weight tells two scored completions apart; `partial` as below. (P,)"""
    xp = array_namespace(rewards_P_G_K)
    known_P_G_K = rewards_P_G_K if partial else _whole(rewards_P_G_K)
    live_P_K = group_statistics(xp.permute_dims(known_P_G_K, (0, 2, 1))).live_P
    return xp.any(live_P_K & (weights_K != 0), axis=-1)


def group_zscore(rewards_P_G: Array, *, std: Std, eps: float, std_floor: float = 0.0) -> Array:
    """Reward relative to its own group, in group standard deviations (DeepSeekMath, section 4.1.2). Returns (P, G).

    A std below `std_floor` is taken as that, so that a group whose rewards nearly agree is not blown up to the size of the others.
    """
    xp = array_namespace(rewards_P_G)
    groups = group_statistics(rewards_P_G, std=std)
    divisor_P = xp.where(groups.std_P < std_floor, xp.full_like(groups.std_P, std_floor), groups.std_P)
    zscores_P_G = (rewards_P_G - groups.mean_P[..., None]) / (divisor_P[..., None] + eps)
    return _over_live(rewards_P_G, zscores_P_G, groups.live_P)


def group_center(rewards_P_G: Array) -> Array:
    """Reward relative to its group's mean, undivided (Dr. GRPO, arXiv:2503.20783). Returns (P, G)."""
    groups = group_statistics(rewards_P_G)
    return _over_live(rewards_P_G, rewards_P_G - groups.mean_P[..., None], groups.live_P)


def batch_std(rewards_P_G: Array, *, eps: float) -> Array:
    """Reward relative to its group's mean, in standard deviations of the batch (PPO Lite, arXiv:2508.08221).

    The std has Bessel's correction, around the batch's mean. Returns (P, G).
    """
    groups = group_statistics(rewards_P_G)
    advantages_P_G = (rewards_P_G - groups.mean_P[..., None]) / (batch_statistics(rewards_P_G).std_P + eps)
    return _over_live(rewards_P_G, advantages_P_G, groups.live_P)


def softmax(rewards_P_G: Array) -> Array:
    """Weights that add up to 1 over the group's scored completions; 1/n each where rewards are equal. Returns (P, G)."""
    xp = array_namespace(rewards_P_G)
    never = xp.full_like(rewards_P_G, -xp.inf)
    known_P_G = xp.where(xp.isnan(rewards_P_G), never, rewards_P_G)
    highest_P_1 = xp.max(known_P_G, axis=-1, keepdims=True)
    # Relative to the highest, so that no exponential overflows.
    shares_P_G = xp.exp(known_P_G - xp.where(highest_P_1 > -xp.inf, highest_P_1, xp.zeros_like(highest_P_1)))
    total_P_1 = xp.sum(shares_P_G, axis=-1, keepdims=True)
    return shares_P_G / xp.where(total_P_1 > 0, total_P_1, xp.ones_like(total_P_1))


def leave_one_out(rewards_P_G: Array) -> Array:
    """Reward relative to the mean of the group's other completions (RLOO, arXiv:2402.14740). Returns (P, G).

    Written as (r - mean) n / (n - 1) with n scored completions, which is the same.
    """
    xp = array_namespace(rewards_P_G)
    groups = group_statistics(rewards_P_G)
    n_P_1 = groups.scored_P[..., None]
    others_P_1 = xp.where(n_P_1 > 1, n_P_1 - 1, xp.ones_like(n_P_1))
    advantages_P_G = (rewards_P_G - groups.mean_P[..., None]) * (n_P_1 / others_P_1)
    return _over_live(rewards_P_G, advantages_P_G, groups.live_P)


def batch_baseline(rewards_P_G: Array) -> Array:
    """Reward relative to the mean of the whole batch (REINFORCE with a baseline). Returns (P, G)."""
    return _over_scored(rewards_P_G, rewards_P_G - batch_statistics(rewards_P_G).mean_P)


def no_baseline(rewards_P_G: Array) -> Array:
    """The reward itself (the vanilla policy gradient). Returns (P, G)."""
    return _over_scored(rewards_P_G, rewards_P_G)


def normalize_then_sum(rewards_P_G_K: Array, weights_K: Array, *, eps: float, partial: bool = False) -> Array:
    """Z-score each of K reward functions in its group, sum by weight, z-score that over the batch (GDPO, arXiv:2601.05242).

    The stds have Bessel's correction. A completion that lacks a component is unscored; if sums may be `partial`, as TRL's are, only
    one that lacks all. Returns (P, G).
    """
    xp = array_namespace(rewards_P_G_K)
    known_P_G_K = rewards_P_G_K if partial else _whole(rewards_P_G_K)
    zscores_P_K_G = group_zscore(xp.permute_dims(known_P_G_K, (0, 2, 1)), std="sample", eps=eps)
    sum_P_G = xp.sum(zscores_P_K_G * weights_K[:, None], axis=1)
    sum_P_G = xp.where(xp.all(xp.isnan(known_P_G_K), axis=-1), xp.full_like(sum_P_G, xp.nan), sum_P_G)
    batch = batch_statistics(sum_P_G)
    return _over_live(
        sum_P_G,
        (sum_P_G - batch.mean_P) / (batch.std_P + eps),
        live_by_component(known_P_G_K, weights_K, partial=partial),
    )


def best_worst(rewards_P_G: Array) -> Array:
    """+1 for the first best completion of a group, -1 for its first worst, 0 for the others. Returns (P, G)."""
    xp = array_namespace(rewards_P_G)
    infinity = xp.full_like(rewards_P_G, xp.inf)
    unscored_P_G = xp.isnan(rewards_P_G)
    best_P_1 = xp.argmax(xp.where(unscored_P_G, -infinity, rewards_P_G), axis=-1, keepdims=True)
    worst_P_1 = xp.argmin(xp.where(unscored_P_G, infinity, rewards_P_G), axis=-1, keepdims=True)
    place_G = xp.arange(rewards_P_G.shape[-1], device=device(rewards_P_G))
    signs_P_G = xp.astype(place_G == best_P_1, rewards_P_G.dtype) - xp.astype(place_G == worst_P_1, rewards_P_G.dtype)
    return _over_live(rewards_P_G, signs_P_G, group_statistics(rewards_P_G).live_P)


def _over_live(rewards_P_G: Array, advantages_P_G: Array, live_P: Array) -> Array:
    xp = array_namespace(rewards_P_G)
    return xp.where(live_P[..., None], _over_scored(rewards_P_G, advantages_P_G), xp.zeros_like(advantages_P_G))


def _over_scored(rewards_P_G: Array, advantages_P_G: Array) -> Array:
    xp = array_namespace(rewards_P_G)
    return xp.where(xp.isnan(rewards_P_G), xp.zeros_like(advantages_P_G), advantages_P_G)


def _whole(rewards_P_G_K: Array) -> Array:
    """NaN throughout for a completion that lacks a component."""
    xp = array_namespace(rewards_P_G_K)
    lacking_P_G_1 = xp.any(xp.isnan(rewards_P_G_K), axis=-1, keepdims=True)
    return xp.where(lacking_P_G_1, xp.full_like(rewards_P_G_K, xp.nan), rewards_P_G_K)
