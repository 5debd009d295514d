"""Importance ratios: how much likelier the policy makes a token, or a completion, than the old policy did."""

import math
from typing import Literal

from array_api_compat import array_namespace

from worker.algorithms.arrays import Array

RatioLevel = Literal["token", "sequence_mean", "sequence_product"]

# Where VESPO bounds log-ratios: of a token, and of a completion (its reference code keeps the ratio above 1e-8).
_TOKEN_LIMIT = 20.0
_LOWEST_LOG, _HIGHEST_LOG = math.log(1e-8), 20.0


def importance_ratio(logprob_R_T: Array, old_logprob_R_T: Array, mask_R_T: Array, *, level: RatioLevel) -> Array:
    """pi(token) / pi_old(token), shape (R, T).

    token: per token (DeepSeekMath). sequence_mean: the geometric mean over the completion (GSPO, arXiv:2507.18071).
    sequence_product: pi(o) / pi_old(o) of the whole completion. The sequence levels repeat one number along the tokens. Where `mask_R_T` is 0 the ratio is that of equal policies, or the sequence's.
    """
    xp = array_namespace(logprob_R_T)
    difference_R_T = (logprob_R_T - old_logprob_R_T) * mask_R_T
    if level == "token":
        return xp.exp(difference_R_T)
    total_R_1 = xp.sum(difference_R_T, axis=-1, keepdims=True)
    if level == "sequence_mean":
        length_R_1 = xp.sum(mask_R_T, axis=-1, keepdims=True)
        total_R_1 = total_R_1 / xp.where(length_R_1 > 0, length_R_1, xp.ones_like(length_R_1))
    return xp.exp(total_R_1) * xp.ones_like(difference_R_T)


def bounded_log_ratio(logprob_R_T: Array, old_logprob_R_T: Array, mask_R_T: Array) -> Array:
    """log pi(o) / pi_old(o) of each whole completion, shape (R, 1), bounded so that its exponential stays finite."""
    xp = array_namespace(logprob_R_T)
    difference_R_T = xp.clip(logprob_R_T - old_logprob_R_T, -_TOKEN_LIMIT, _TOKEN_LIMIT) * mask_R_T
    return xp.clip(xp.sum(difference_R_T, axis=-1, keepdims=True), _LOWEST_LOG, _HIGHEST_LOG)
