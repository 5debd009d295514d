"""What the KL penalty adds to a step's loss, in numbers and in words."""

import numpy as np

from dashboard.algorithm.recomputation import Own, Settings, StepArrays, Values
from dashboard.format import number
from dashboard.wording import in_words
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


def kl_in_words(own: Own, chosen: Settings, kl: float | None, per_token: float | None = None) -> str:
    """What the KL penalty costs, at the run's β and at the chosen one: `kl` is aggregated as the loss is, not `per_token`."""
    before = own.settings.beta
    if not own.measured:
        return "**KL:** β was 0, so no KL was measured, so another β cannot be tried."
    if own.penalised:
        return (
            f"**KL:** in the reward. Each completion's reward has β × the sum of its KL taken off, β = {number(chosen.beta)}"
            + ("." if chosen.beta == before else f" instead of {number(before)}.")
        )
    if kl is None:
        return "**KL:** not measured for this step."
    sentence = f"**KL:** its part of the step's loss is {number(before)} × {number(kl)} = {number(before * kl)}"
    if chosen.beta != before:
        sentence += f"; with β = {number(chosen.beta)} it would be {number(chosen.beta * kl)}"
    if per_token is not None and number(per_token) != number(kl):
        mean = "its mean over all tokens"
        if own.algorithm.updates_per_batch == 1:  # of several updates the metric is the mean, and this is the last
            mean = f"the metric kl, {mean},"
        sentence += (
            f". {number(kl)} is the KL aggregated as the loss is ({in_words(own.algorithm.aggregation)}); {mean} is "
            f"{number(per_token)}"
        )
    return f"{sentence}. Advantages do not depend on it."
