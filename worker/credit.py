"""Credit assignment: from rewards to what each completion, or each token, is worth."""

from dataclasses import dataclass

import torch
from torch import Tensor

from backend.contract.advantage import Advantage, Gae, NormalizeThenSum
from backend.contract.grpo import GrpoConfig
from worker.algorithms.advantages import GroupStatistics, group_statistics, live_by_component
from worker.algorithms.estimator import estimate
from worker.algorithms.gae import gae, last_token_rewards, normalize
from worker.rewards.scoring import Scores
from worker.token_record import TokenRecord


@dataclass(frozen=True)
class Credit:
    """Rewards as the estimator used them, (P, G), and what came of them."""

    rewards_P_G: Tensor  # float64; less the KL penalty where that is in the reward; NaN: unscored
    statistics: GroupStatistics  # but a group is live only if the task's own rewards differ, whatever the penalty adds
    advantages_R_T: Tensor  # (R, 1): one for all of a completion's tokens; (R, T) from a critic
    returns_R_T: Tensor | None  # what the critic should have said; NaN: unscored
    penalty_R: Tensor | None  # the sum of a completion's KL, where it is in the reward

    def advantages_P_G(self, mask_R_T: Tensor) -> Tensor:
        """One advantage for each completion: the mean over its tokens."""
        if self.advantages_R_T.shape[1] == 1:
            return self.advantages_R_T.reshape(self.rewards_P_G.shape)
        return (self.advantages_R_T.sum(-1) / mask_R_T.sum(-1)).reshape(self.rewards_P_G.shape)


def assign_credit(config: GrpoConfig, scores: Scores, tokens: TokenRecord) -> Credit:
    """Advantages from scores, and from the values and the KL that the learner's look has put into `tokens`.

    In float64, so that what a person recomputes from the rewards on the screen is what trained the policy.
    """
    kl = config.algorithm.kl
    rewards_R = torch.from_numpy(scores.total)
    penalty_R_T = penalty_R = None
    if kl.placement == "reward" and kl.beta > 0:
        penalty_R_T = kl.beta * tokens["kl"].double().nan_to_num(nan=0.0)
        penalty_R = tokens["kl"].double().nansum(-1)
        rewards_R = rewards_R - penalty_R_T.sum(-1)
    rewards_P_G = rewards_R.reshape(-1, config.sampling.group_size)
    chosen = config.algorithm.advantage
    live_P = live_groups(chosen, scores, config.sampling.group_size)
    if isinstance(chosen, Gae):
        advantages_R_T, returns_R_T = _from_critic(chosen, torch.from_numpy(scores.total), penalty_R_T, tokens)
        statistics = group_statistics(rewards_P_G)._replace(live_P=live_P)
        return Credit(rewards_P_G, statistics, advantages_R_T, returns_R_T, penalty_R)
    components_P_G_K, weights_K = _components(scores, config.sampling.group_size)
    estimated = estimate(chosen, rewards_P_G, components_P_G_K=components_P_G_K, weights_K=weights_K)
    statistics = estimated.statistics._replace(live_P=live_P)
    return Credit(rewards_P_G, statistics, estimated.advantages_P_G.reshape(-1, 1), None, penalty_R)


def live_groups(chosen: Advantage, scores: Scores, group_size: int) -> Tensor:
    """True for each group in which the task's own rewards tell two completions apart, as the estimator compares them. (P,)"""
    if isinstance(chosen, NormalizeThenSum):
        return live_by_component(*_components(scores, group_size))  # type: ignore[no-any-return]
    return group_statistics(torch.from_numpy(scores.total).reshape(-1, group_size)).live_P  # type: ignore[no-any-return]


def _components(scores: Scores, group_size: int) -> tuple[Tensor, Tensor]:
    """The raw values of the K functions that have a weight, (P, G, K) with NaN where one is missing, and the weights, (K,)."""
    weighed = [[score for score in parts if score.weight] for parts in scores.components]
    raws = [[torch.nan if score.raw is None else score.raw for score in parts] for parts in weighed]
    weights_K = torch.tensor([score.weight for score in weighed[0]], dtype=torch.float64)
    return torch.tensor(raws, dtype=torch.float64).reshape(-1, group_size, len(weights_K)), weights_K


def _from_critic(
    chosen: Gae, rewards_R: Tensor, penalty_R_T: Tensor | None, tokens: TokenRecord
) -> tuple[Tensor, Tensor]:
    """The reward counts at the last token, the penalty at each (PPO as it is done for language models)."""
    mask_R_T = tokens.mask.double()
    scored_R_1 = ~rewards_R.isnan()[:, None]
    rewards_R_T = last_token_rewards(rewards_R, mask_R_T)
    if penalty_R_T is not None:
        rewards_R_T = rewards_R_T - penalty_R_T
    values_R_T = tokens["value"].double().nan_to_num(nan=0.0)
    advantages_R_T, returns_R_T = gae(rewards_R_T, values_R_T, mask_R_T, gamma=chosen.gamma, lam=chosen.lam)
    if chosen.normalize:
        advantages_R_T = normalize(advantages_R_T, mask_R_T * scored_R_1)
    return torch.where(scored_R_1, advantages_R_T, 0.0), torch.where(scored_R_1, returns_R_T, torch.nan)
