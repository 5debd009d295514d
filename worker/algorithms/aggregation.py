"""Aggregation of token losses into one number, written as the weight that each token's loss gets.

The weights are fixed for the whole optimizer step before it is split into micro-batches: the loss is the sum of weight
times token loss, so no split can change it.
"""

from typing import Literal

from array_api_compat import array_namespace

from worker.algorithms.arrays import Array

Aggregation = Literal["sequence_mean", "token_mean", "constant", "sequence_sum", "group_sum", "group_token_mean"]


def token_weights(mask_R_T: Array, *, aggregation: Aggregation, max_new_tokens: int, group_size: int = 1) -> Array:
    """The weight of each token, (R, T), from the mask of the tokens that are trained on (1.0 or 0.0).

    sequence_mean: mean over completions of their means over tokens (DeepSeekMath, equation 3). token_mean: mean over all
    tokens (DAPO, arXiv:2503.14476). constant: sum over tokens / (completions × max_new_tokens) (Dr. GRPO). sequence_sum:
    mean over completions of their sums over tokens (LUSPO, arXiv:2602.05261). group_sum, group_token_mean: mean over
    prompts of the group's sum of such sums, or of such means; a group's rows stand together.
    A completion without a token that is trained on counts in no mean, nor does a prompt without such a completion. All
    zeros if there is none left.
    """
    xp = array_namespace(mask_R_T)
    length_R_1 = xp.sum(mask_R_T, axis=-1, keepdims=True)
    per_row = mask_R_T / _at_least_one(length_R_1)
    match aggregation:
        case "sequence_mean":
            return per_row / _at_least_one(_rows(length_R_1))
        case "token_mean":
            return mask_R_T / _at_least_one(xp.sum(length_R_1))
        case "constant":
            return mask_R_T / (_at_least_one(_rows(length_R_1)) * max_new_tokens)
        case "sequence_sum":
            return mask_R_T / _at_least_one(_rows(length_R_1))
        case "group_sum":
            return mask_R_T / _at_least_one(_rows(_of_group(length_R_1, group_size)))
        case "group_token_mean":
            return per_row / _at_least_one(_rows(_of_group(length_R_1, group_size)))


def _rows(length_R_1: Array) -> Array:
    """How many rows have a token."""
    xp = array_namespace(length_R_1)
    return xp.sum(xp.astype(length_R_1 > 0, length_R_1.dtype))


def _of_group(length_R_1: Array, group_size: int) -> Array:
    """Tokens of each group, (P, 1)."""
    xp = array_namespace(length_R_1)
    return xp.sum(xp.reshape(length_R_1, (-1, group_size)), axis=-1, keepdims=True)


def _at_least_one(count: Array) -> Array:
    xp = array_namespace(count)
    return xp.where(count > 0, count, xp.ones_like(count))
