"""The one entry from a chosen estimator to advantages: the trainer, the what-if and the Playground all call it."""

from typing import NamedTuple

from array_api_compat import array_namespace

from backend.contract.advantage import (
    Advantage,
    BatchBaseline,
    BatchStd,
    BestWorst,
    Gae,
    GroupCenter,
    GroupZscore,
    LeaveOneOut,
    NoBaseline,
    NormalizeThenSum,
    Softmax,
)
from worker.algorithms import advantages
from worker.algorithms.advantages import GroupStatistics
from worker.algorithms.arrays import Array


class Estimate(NamedTuple):
    """Advantages, (P, G), and the mean and std that they were measured by.

    `statistics` are the batch's where the estimator uses those (NaN for a group without a scored completion), else the
    group's own, with a population std unless the estimator chose the other.
    """

    advantages_P_G: Array
    statistics: GroupStatistics


def estimate(
    chosen: Advantage,
    rewards_P_G: Array,
    *,
    components_P_G_K: Array | None = None,
    weights_K: Array | None = None,
    partial: bool = False,
) -> Estimate:
    """The advantages of rewards (P, G), NaN where unscored, by the chosen estimator.

    `components_P_G_K` and `weights_K` are the K reward functions' values and weights, which only `normalize_then_sum`
    reads; without them the reward is its only component. A component that is missing takes no part in `partial` sums (TRL's rule).
    Raises ValueError for `gae`, which needs values of tokens.

    On numpy what a person recomputes is, bit for bit, what trained the policy; torch adds up in another order.
    """
    groups = advantages.group_statistics(rewards_P_G)
    match chosen:
        case GroupZscore(std=std, eps=eps, std_floor=floor):
            zscores_P_G = advantages.group_zscore(rewards_P_G, std=std, eps=eps, std_floor=floor)
            return Estimate(zscores_P_G, advantages.group_statistics(rewards_P_G, std=std))
        case GroupCenter():
            return Estimate(advantages.group_center(rewards_P_G), groups)
        case BatchStd(eps=eps):
            std_P = _per_group(advantages.batch_statistics(rewards_P_G).std_P, groups)
            return Estimate(advantages.batch_std(rewards_P_G, eps=eps), groups._replace(std_P=std_P))
        case Softmax():
            return Estimate(advantages.softmax(rewards_P_G), groups)
        case LeaveOneOut():
            return Estimate(advantages.leave_one_out(rewards_P_G), groups)
        case BatchBaseline():
            mean_P = _per_group(advantages.batch_statistics(rewards_P_G).mean_P, groups)
            return Estimate(advantages.batch_baseline(rewards_P_G), groups._replace(mean_P=mean_P))
        case NoBaseline():
            return Estimate(advantages.no_baseline(rewards_P_G), groups)
        case NormalizeThenSum(eps=eps):
            known_P_G_K, weights_K = _weighed(rewards_P_G, components_P_G_K, weights_K)
            summed_P_G = advantages.normalize_then_sum(known_P_G_K, weights_K, eps=eps, partial=partial)
            live_P = advantages.live_by_component(known_P_G_K, weights_K, partial=partial)
            return Estimate(summed_P_G, groups._replace(live_P=live_P))
        case BestWorst():
            return Estimate(advantages.best_worst(rewards_P_G), groups)
        case Gae():
            raise ValueError("gae gives each token an advantage from the value head: see worker.algorithms.gae")


def live_groups(
    chosen: Advantage,
    rewards_P_G: Array,
    *,
    components_P_G_K: Array | None = None,
    weights_K: Array | None = None,
    partial: bool = False,
) -> Array:
    """True for each group in which rewards tell two completions apart, as the estimator compares them. Shape (P,)."""
    if isinstance(chosen, NormalizeThenSum):
        return advantages.live_by_component(*_weighed(rewards_P_G, components_P_G_K, weights_K), partial=partial)
    return advantages.group_statistics(rewards_P_G).live_P


def _per_group(of_batch_1: Array, groups: GroupStatistics) -> Array:
    xp = array_namespace(of_batch_1)
    return xp.where(groups.scored_P > 0, of_batch_1, xp.full_like(groups.scored_P, xp.nan))


def _weighed(rewards_P_G: Array, components_P_G_K: Array | None, weights_K: Array | None) -> tuple[Array, Array]:
    """The components, NaN where the reward is and 0 where the weight is, and their weights; the reward if there are none.

    What is only measured moves nothing, also where it is missing.
    """
    xp = array_namespace(rewards_P_G)
    if components_P_G_K is None or weights_K is None:
        return rewards_P_G[..., None], xp.ones_like(rewards_P_G[0, :1])
    counting_P_G_K = xp.where(weights_K != 0, components_P_G_K, xp.zeros_like(components_P_G_K))
    unscored_P_G_1 = xp.isnan(rewards_P_G)[..., None]
    return xp.where(unscored_P_G_1, xp.full_like(components_P_G_K, xp.nan), counting_P_G_K), weights_K
