"""Aggregation of token losses into one number, written as the weight that each token's loss gets.

The weights are fixed for the whole optimizer step before it is split into micro-batches: the loss is the sum of weight
times token loss, so no split can change it.
"""

from typing import Literal

from array_api_compat import array_namespace

from worker.algorithms.arrays import Array

Aggregation = Literal["sequence_mean", "token_mean", "constant"]


def token_weights(mask_R_T: Array, *, aggregation: Aggregation, max_new_tokens: int) -> Array:
    """The weight of each token, (R, T), from the mask of the tokens that are trained on (1.0 or 0.0).

    sequence_mean: mean over completions of their means over tokens (DeepSeekMath, equation 3). token_mean: mean over all
    tokens (DAPO, arXiv:2503.14476). constant: sum over tokens / (completions × max_new_tokens) (Dr. GRPO).
    A completion without a token that is trained on counts in no mean. All zeros if there is none left.
    """
    xp = array_namespace(mask_R_T)
    length_R_1 = xp.sum(mask_R_T, axis=-1, keepdims=True)
    present_R_1 = xp.astype(length_R_1 > 0, mask_R_T.dtype)
    rows = xp.sum(present_R_1)
    one = xp.ones_like(rows)
    if aggregation == "token_mean":
        tokens = xp.sum(mask_R_T)
        return mask_R_T / xp.where(tokens > 0, tokens, one)
    rows = xp.where(rows > 0, rows, one)
    if aggregation == "constant":
        return mask_R_T / (rows * max_new_tokens)
    return mask_R_T / (xp.where(length_R_1 > 0, length_R_1, xp.ones_like(length_R_1)) * rows)
