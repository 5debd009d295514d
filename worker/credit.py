"""Credit assignment: from rewards to what each completion, or each token, is worth."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.contract.advantage import Advantage, Gae
from backend.contract.grpo import GrpoConfig
from worker.algorithms.advantages import GroupStatistics, group_statistics
from worker.algorithms.estimator import Estimate, estimate, live_groups
from worker.algorithms.gae import gae, last_token_rewards, normalize
from worker.algorithms.total_reward import with_penalty
from worker.rewards.scoring import Scores
from worker.token_record import TokenRecord

Values: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Credit:
    """Rewards as the estimator used them, (P, G), and what came of them. Only what the learner trains with is torch's."""

    rewards_P_G: Values  # float64; less the KL penalty where that is in the reward; NaN: unscored
    statistics: GroupStatistics  # but a group is live only if the task's own rewards differ, whatever the penalty adds
    advantages_R_T: Tensor  # (R, 1): one for all of a completion's tokens; (R, T) from a critic
    returns_R_T: Tensor | None  # what the critic should have said; NaN: unscored
    penalty_R: Values | None  # the sum of a completion's KL, where it is in the reward

    def advantages_R(self, mask_R_T: Tensor) -> Values:
        """One advantage for each completion: the mean over its tokens."""
        if self.advantages_R_T.shape[1] == 1:
            return self.advantages_R_T[:, 0].numpy()
        return (self.advantages_R_T.sum(-1) / mask_R_T.sum(-1)).numpy()


def assign_credit(config: GrpoConfig, scores: Scores, tokens: TokenRecord) -> Credit:
    """Advantages from scores, and from the values and the KL that the learner's look has put into `tokens`.

    In float64 and on numpy, from numbers that are all recorded, so that what the what-if recomputes is, bit for bit, what
    trained the policy. Only a critic's advantages, which need every token's value, are torch's.
    """
    kl, size = config.algorithm.kl, config.sampling.group_size
    rewards_R, penalty_R = scores.total, None
    if kl.placement == "reward" and kl.beta > 0:
        penalty_R = tokens.sums("kl")
        rewards_R = with_penalty(rewards_R, -penalty_R, beta=kl.beta)
    rewards_P_G = rewards_R.reshape(-1, size)
    chosen = config.algorithm.advantage
    if isinstance(chosen, Gae):
        advantages_R_T, returns_R_T = _from_critic(chosen, config, scores, tokens)
        statistics = group_statistics(rewards_P_G)._replace(live_P=live_in(chosen, scores, size))
        return Credit(rewards_P_G, statistics, advantages_R_T, returns_R_T, penalty_R)
    advantages_P_G, statistics = estimated(chosen, rewards_P_G, scores)
    return Credit(rewards_P_G, statistics, torch.from_numpy(advantages_P_G.reshape(-1, 1)), None, penalty_R)


def estimated(chosen: Advantage, rewards_P_G: Values, scores: Scores) -> Estimate:
    """What the chosen estimator makes of the rewards. A group is live only if its scores differ, whatever a penalty adds."""
    group_size = rewards_P_G.shape[1]
    components_P_G_K, weights_K = components_of(scores, group_size)
    found = estimate(chosen, rewards_P_G, components_P_G_K=components_P_G_K, weights_K=weights_K)
    return found._replace(statistics=found.statistics._replace(live_P=live_in(chosen, scores, group_size)))


def live_in(chosen: Advantage, scores: Scores, group_size: int) -> NDArray[np.bool_]:
    """True for each group in which the task's own rewards tell two completions apart, as the estimator compares them. (P,)"""
    components_P_G_K, weights_K = components_of(scores, group_size)
    live_P: NDArray[np.bool_] = live_groups(
        chosen, scores.total.reshape(-1, group_size), components_P_G_K=components_P_G_K, weights_K=weights_K
    )
    return live_P


def components_of(scores: Scores, group_size: int) -> tuple[Values, Values]:
    """The raw values of the K reward functions, (P, G, K) with NaN where one is missing, and their weights, (K,)."""
    raws = [[np.nan if score.raw is None else score.raw for score in parts] for parts in scores.components]
    weights_K = np.array([score.weight for score in scores.components[0]], dtype=np.float64)
    return np.array(raws, dtype=np.float64).reshape(-1, group_size, len(weights_K)), weights_K


def _from_critic(chosen: Gae, config: GrpoConfig, scores: Scores, tokens: TokenRecord) -> tuple[Tensor, Tensor]:
    """The reward counts at the last token, the penalty at each (PPO as it is done for language models)."""
    kl, rewards_R, mask_R_T = config.algorithm.kl, torch.from_numpy(scores.total), tokens.mask.double()
    scored_R_1 = ~rewards_R.isnan()[:, None]
    rewards_R_T = last_token_rewards(rewards_R, mask_R_T)
    if kl.placement == "reward" and kl.beta > 0:
        rewards_R_T = rewards_R_T - kl.beta * tokens["kl"].double().nan_to_num(nan=0.0)
    values_R_T = tokens["value"].double().nan_to_num(nan=0.0)
    advantages_R_T, returns_R_T = gae(rewards_R_T, values_R_T, mask_R_T, gamma=chosen.gamma, lam=chosen.lam)
    if chosen.normalize:
        advantages_R_T = normalize(advantages_R_T, mask_R_T * scored_R_1)
    return torch.where(scored_R_1, advantages_R_T, 0.0), torch.where(scored_R_1, returns_R_T, torch.nan)
