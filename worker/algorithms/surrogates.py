"""Surrogate losses: the term that is minimised for each token. Shapes (R, T); advantages broadcast from (R, 1)."""

from array_api_compat import array_namespace

from worker.algorithms.arrays import Array, stop_gradient
from worker.algorithms.ratios import bounded_log_ratio


def clip(
    ratio_R_T: Array, advantages_R_1: Array, *, epsilon_low: float, epsilon_high: float, delta: float | None = None
) -> Array:
    """-min(r A, clip(r, 1 - eps_low, 1 + eps_high) A) (PPO, arXiv:1707.06347, equation 7).

    With `delta`, r itself is capped too (INTELLECT-2, arXiv:2505.07291), so that a discouraged token's loss is bounded.
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


def cispo(ratio_R_T: Array, logprob_R_T: Array, advantages_R_1: Array, *, cap: float) -> Array:
    """-min(r, cap) A log p with a constant weight (CISPO: MiniMax-M1, arXiv:2506.13585, equations 4 and 5)."""
    xp = array_namespace(ratio_R_T)
    return -stop_gradient(xp.clip(ratio_R_T, None, cap)) * advantages_R_1 * logprob_R_T


def sapo(ratio_R_T: Array, advantages_R_1: Array, *, tau_positive: float, tau_negative: float) -> Array:
    """-sigmoid(tau (r - 1)) 4 / tau A: the gate's slope is 1 on policy (SAPO, arXiv:2511.20347)."""
    xp = array_namespace(ratio_R_T)
    tau_R_1 = _by_sign(advantages_R_1 > 0, advantages_R_1, tau_positive, tau_negative)
    x_R_T = tau_R_1 * (ratio_R_T - 1)
    # sigmoid as exp(-log(1 + e^-x)), whose gradient neither overflows nor rounds to 0 where the gate is nearly shut.
    gate_R_T = xp.exp(-xp.logaddexp(xp.zeros_like(x_R_T), -x_R_T))
    return -gate_R_T * 4 / tau_R_1 * advantages_R_1


def vespo(
    logprob_R_T: Array,
    old_logprob_R_T: Array,
    mask_R_T: Array,
    advantages_R_1: Array,
    *,
    k_positive: float,
    lambda_positive: float,
    k_negative: float,
    lambda_negative: float,
) -> Array:
    """-phi(w) A log p with a constant phi(w) = e^lambda w^k e^(-lambda w) (VESPO, arXiv:2602.10693).

    w is the whole completion's ratio: phi is 1 on policy, and falls for completions that moved far to either side.
    """
    xp = array_namespace(logprob_R_T)
    log_w_R_1 = bounded_log_ratio(stop_gradient(logprob_R_T), old_logprob_R_T, mask_R_T)
    encouraged_R_1 = advantages_R_1 >= 0
    k_R_1 = _by_sign(encouraged_R_1, advantages_R_1, k_positive, k_negative)
    lambda_R_1 = _by_sign(encouraged_R_1, advantages_R_1, lambda_positive, lambda_negative)
    phi_R_1 = xp.exp(lambda_R_1 + k_R_1 * log_w_R_1 - lambda_R_1 * xp.exp(log_w_R_1))
    return -phi_R_1 * advantages_R_1 * logprob_R_T


def value_loss(values_R_T: Array, returns_R_T: Array) -> Array:
    """(V - target)^2, without PPO's clipping of V."""
    return (values_R_T - returns_R_T) ** 2


def _by_sign(first_R_1: Array, like_R_1: Array, if_first: float, otherwise: float) -> Array:
    xp = array_namespace(like_R_1)
    return xp.where(first_R_1, xp.full_like(like_R_1, if_first), xp.full_like(like_R_1, otherwise))
