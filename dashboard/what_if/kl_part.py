"""What the KL penalty adds to a step's loss."""

import numpy as np

from dashboard.algorithm.recomputation import Own, StepArrays, Values
from worker.algorithms.objective import token_weights


def kl_in_loss(step: StepArrays, own: Own) -> float | None:
    """The KL that the loss takes β times: the sum over tokens of the token's weight in the loss times its KL, in nats.

    None where no KL was measured, or where it is in the reward. As of the last pass over the batch; a completion that passed
    through no model adds nothing.
    """
    kl_mean_P_G = step.of_completions(lambda one: one.kl_mean)
    if own.algorithm.kl.placement != "loss" or np.isnan(kl_mean_P_G).all():
        return None
    known_P_G = np.where(np.isnan(kl_mean_P_G), 0.0, kl_mean_P_G)
    return float((_weights(step, own) * known_P_G).sum())


def kl_per_token(step: StepArrays) -> float | None:
    """The mean KL over all tokens of the step that were measured: with one update per batch, the metric `kl`."""
    kl_mean_P_G = step.of_completions(lambda one: one.kl_mean)
    known_P_G = ~np.isnan(kl_mean_P_G)
    lengths_P_G = step.of_completions(lambda one: one.token_count)
    if not known_P_G.any():
        return None
    return float(np.average(kl_mean_P_G[known_P_G], weights=lengths_P_G[known_P_G]))


def _weights(step: StepArrays, own: Own) -> Values:
    """The weights of each completion's tokens in the loss, added up. (P, G)"""
    trained_P_G = ~np.isnan(step.rewards_P_G)
    if own.algorithm.truncated_completions == "mask":
        trained_P_G &= step.of_completions(lambda one: one.finish_reason == "stop") == 1
    lengths_P_G = np.where(trained_P_G, step.of_completions(lambda one: one.token_count), 0.0)
    # Every aggregation is linear in a row's mask: one column with the row's length gives the sum over its tokens.
    weights_R_1 = token_weights(
        lengths_P_G.reshape(-1, 1),
        aggregation=own.algorithm.aggregation,
        max_new_tokens=own.max_new_tokens,
        group_size=lengths_P_G.shape[1],
    )
    return np.asarray(weights_R_1.reshape(lengths_P_G.shape), dtype=np.float64)
