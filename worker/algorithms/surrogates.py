"""Surrogate losses: the term that is minimised for each token. Shapes (R, T); advantages broadcast from (R, 1)."""

from array_api_compat import array_namespace

from worker.algorithms.arrays import Array


def clip(
    ratio_R_T: Array, advantages_R_1: Array, *, epsilon_low: float, epsilon_high: float, delta: float | None = None
) -> Array:
    """-min(r A, clip(r, 1 - eps_low, 1 + eps_high) A) (PPO, arXiv:1707.06347, equation 7).

    With `delta`, r itself is capped too (dual clipping), so that a discouraged token's loss is bounded.
    """
    xp = array_namespace(ratio_R_T)
    clipped_R_T = xp.clip(ratio_R_T, 1 - epsilon_low, 1 + epsilon_high)
    free_R_T = ratio_R_T if delta is None else xp.clip(ratio_R_T, None, delta)
    return -xp.minimum(free_R_T * advantages_R_1, clipped_R_T * advantages_R_1)


def clipped_low(ratio_R_T: Array, advantages_R_1: Array, *, epsilon_low: float) -> Array:
    """True where clipping from below stops the gradient: a discouraged token that fell far enough already."""
    return (ratio_R_T < 1 - epsilon_low) & (advantages_R_1 < 0)


def clipped_high(ratio_R_T: Array, advantages_R_1: Array, *, epsilon_high: float) -> Array:
    """True where clipping from above stops the gradient: a reinforced token that rose far enough already."""
    return (ratio_R_T > 1 + epsilon_high) & (advantages_R_1 > 0)


def policy_gradient(logprob_R_T: Array, advantages_R_1: Array) -> Array:
    """-A log p (REINFORCE, the vanilla policy gradient)."""
    return -advantages_R_1 * logprob_R_T
