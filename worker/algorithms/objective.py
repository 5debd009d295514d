"""The loss of one batch of rows: ratio, surrogate, KL penalty and aggregation, composed along the axes of `Algorithm`.

The learner and the Playground call the same functions. Shapes are (R, T); an advantage of a whole completion is (R, 1)
and broadcasts.
"""

import math
from typing import NamedTuple

from array_api_compat import array_namespace

from backend.contract.algorithm import Aggregation, Algorithm, KlEstimator, RatioLevel
from backend.contract.surrogate import Cispo, Clip, Dpo, PolicyGradient, Sapo, Surrogate, Vespo
from worker.algorithms.arrays import Array, stop_gradient

# Where VESPO bounds log-ratios: of a token, and of a completion (its reference code keeps the ratio above 1e-8).
_TOKEN_LIMIT = 20.0
_LOWEST_LOG, _HIGHEST_LOG = math.log(1e-8), 20.0
# exp overflows float32 near 88; beyond 20 the estimate says "very far" all the same, and stays finite.
_LOG_RATIO_LIMIT = 20.0


class TokenTerms(NamedTuple):
    """Per token, each (R, T). The batch's loss is the sum of weight × `loss_R_T`, with the weights of `token_weights`."""

    loss_R_T: Array
    ratio_R_T: Array
    low_R_T: Array  # True where the surrogate clips from below
    high_R_T: Array  # and from above
    kl_R_T: Array | None  # None where the loss has no penalty


def token_terms(
    algorithm: Algorithm,
    *,
    logprob_R_T: Array,
    old_logprob_R_T: Array,
    advantages_R_T: Array,
    mask_R_T: Array,
    reference_logprob_R_T: Array | None = None,
    full_logprob_R_T: Array | None = None,
    entropy_R_T: Array | None = None,
    values_R_T: Array | None = None,
    returns_R_T: Array | None = None,
) -> TokenTerms:
    """Ratio, surrogate, KL penalty, entropy bonus and value loss of each token.

    `advantages_R_T` may be (R, 1); the mask is of floats. `full_logprob_R_T` are log-probs over all tokens, for the KL,
    where `logprob_R_T` are over the sampler's support only. A part whose arrays are not given adds nothing. The surrogate
    `dpo` is 0 here: its loss is of pairs (`preference`).
    """
    ratio_R_T = importance_ratio(logprob_R_T, old_logprob_R_T, mask_R_T, level=algorithm.ratio)
    loss_R_T = surrogate_loss(algorithm.surrogate, logprob_R_T, old_logprob_R_T, ratio_R_T, advantages_R_T, mask_R_T)
    low_R_T, high_R_T = clipped(algorithm.surrogate, ratio_R_T, advantages_R_T)
    kl_R_T = None
    if algorithm.kl.placement == "loss" and algorithm.kl.beta > 0 and reference_logprob_R_T is not None:
        compared_R_T = logprob_R_T if full_logprob_R_T is None else full_logprob_R_T
        kl_R_T = kl_per_token(compared_R_T, reference_logprob_R_T, estimator=algorithm.kl.estimator)
        loss_R_T = loss_R_T + algorithm.kl.beta * kl_R_T
    if algorithm.entropy_bonus > 0 and entropy_R_T is not None:
        loss_R_T = loss_R_T - algorithm.entropy_bonus * entropy_R_T
    if algorithm.advantage.kind == "gae" and values_R_T is not None and returns_R_T is not None:
        loss_R_T = loss_R_T + algorithm.advantage.value_coefficient * value_loss(values_R_T, returns_R_T)
    return TokenTerms(loss_R_T, ratio_R_T, low_R_T, high_R_T, kl_R_T)


def surrogate_loss(
    chosen: Surrogate,
    logprob_R_T: Array,
    old_logprob_R_T: Array,
    ratio_R_T: Array,
    advantages_R_T: Array,
    mask_R_T: Array,
) -> Array:
    """The chosen surrogate's term of each token's loss, (R, T); 0 for `dpo`, whose loss is of pairs."""
    match chosen:
        case Clip(epsilon_low=low, epsilon_high=high, delta=delta):
            return clip(ratio_R_T, advantages_R_T, epsilon_low=low, epsilon_high=high, delta=delta)
        case PolicyGradient():
            return policy_gradient(logprob_R_T, advantages_R_T)
        case Cispo(cap=cap):
            return cispo(ratio_R_T, logprob_R_T, advantages_R_T, cap=cap)
        case Sapo(tau_positive=positive, tau_negative=negative):
            return sapo(ratio_R_T, advantages_R_T, tau_positive=positive, tau_negative=negative)
        case Vespo():
            return vespo(
                logprob_R_T,
                old_logprob_R_T,
                mask_R_T,
                advantages_R_T,
                k_positive=chosen.k_positive,
                lambda_positive=chosen.lambda_positive,
                k_negative=chosen.k_negative,
                lambda_negative=chosen.lambda_negative,
            )
        case Dpo():
            return array_namespace(logprob_R_T).zeros_like(logprob_R_T)


def clipped(chosen: Surrogate, ratio_R_T: Array, advantages_R_T: Array) -> tuple[Array, Array]:
    """True for each token that the chosen surrogate clips from below, and from above: each (R, T).

    `clip`: where clipping stops the gradient. `cispo`: where the weight is at the cap and the advantage above 0, as TRL counts
    it; with another advantage the weight is cut as well, and not counted.
    """
    xp = array_namespace(ratio_R_T)
    never_R_T = xp.zeros_like(ratio_R_T, dtype=xp.bool)
    match chosen:
        case Clip(epsilon_low=low, epsilon_high=high):
            return (
                clipped_low(ratio_R_T, advantages_R_T, epsilon_low=low),
                clipped_high(ratio_R_T, advantages_R_T, epsilon_high=high),
            )
        case Cispo(cap=cap):
            return never_R_T, (ratio_R_T > cap) & (advantages_R_T > 0)
        case _:
            return never_R_T, never_R_T


# ---- the ratio


def importance_ratio(logprob_R_T: Array, old_logprob_R_T: Array, mask_R_T: Array, *, level: RatioLevel) -> Array:
    """pi(token) / pi_old(token), shape (R, T).

    token: per token (DeepSeekMath). sequence_mean: the geometric mean over the completion (GSPO, arXiv:2507.18071).
    sequence_product: pi(o) / pi_old(o) of the whole completion. The sequence levels repeat one number along the tokens.
    Where `mask_R_T` is 0 the ratio is that of equal policies, or the sequence's.
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


# ---- surrogates: the term that is minimised for each token


def clip(
    ratio_R_T: Array, advantages_R_T: Array, *, epsilon_low: float, epsilon_high: float, delta: float | None = None
) -> Array:
    """-min(r A, clip(r, 1 - eps_low, 1 + eps_high) A) (PPO, arXiv:1707.06347, equation 7).

    With `delta`, r itself is capped too (INTELLECT-2, arXiv:2505.07291), so that a discouraged token's loss is bounded.
    """
    xp = array_namespace(ratio_R_T)
    clipped_R_T = xp.clip(ratio_R_T, 1 - epsilon_low, 1 + epsilon_high)
    free_R_T = ratio_R_T if delta is None else xp.clip(ratio_R_T, None, delta)
    return -xp.minimum(free_R_T * advantages_R_T, clipped_R_T * advantages_R_T)


def clipped_low(ratio_R_T: Array, advantages_R_T: Array, *, epsilon_low: float) -> Array:
    """True where clipping from below stops the gradient: a discouraged token that fell far enough already."""
    return (ratio_R_T < 1 - epsilon_low) & (advantages_R_T < 0)


def clipped_high(ratio_R_T: Array, advantages_R_T: Array, *, epsilon_high: float) -> Array:
    """True where clipping from above stops the gradient: a reinforced token that rose far enough already."""
    return (ratio_R_T > 1 + epsilon_high) & (advantages_R_T > 0)


def policy_gradient(logprob_R_T: Array, advantages_R_T: Array) -> Array:
    """-A log p (REINFORCE, the vanilla policy gradient)."""
    return -advantages_R_T * logprob_R_T


def cispo(ratio_R_T: Array, logprob_R_T: Array, advantages_R_T: Array, *, cap: float) -> Array:
    """-min(r, cap) A log p with a constant weight (CISPO: MiniMax-M1, arXiv:2506.13585, equations 4 and 5)."""
    xp = array_namespace(ratio_R_T)
    return -stop_gradient(xp.clip(ratio_R_T, None, cap)) * advantages_R_T * logprob_R_T


def sapo(ratio_R_T: Array, advantages_R_T: Array, *, tau_positive: float, tau_negative: float) -> Array:
    """-sigmoid(tau (r - 1)) 4 / tau A: the gate's slope is 1 on policy (SAPO, arXiv:2511.20347)."""
    xp = array_namespace(ratio_R_T)
    tau_R_T = _by_sign(advantages_R_T > 0, advantages_R_T, tau_positive, tau_negative)
    x_R_T = tau_R_T * (ratio_R_T - 1)
    # sigmoid as exp(-log(1 + e^-x)), whose gradient neither overflows nor rounds to 0 where the gate is nearly shut.
    gate_R_T = xp.exp(-xp.logaddexp(xp.zeros_like(x_R_T), -x_R_T))
    return -gate_R_T * 4 / tau_R_T * advantages_R_T


def vespo(
    logprob_R_T: Array,
    old_logprob_R_T: Array,
    mask_R_T: Array,
    advantages_R_T: Array,
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
    encouraged_R_T = advantages_R_T >= 0
    k_R_T = _by_sign(encouraged_R_T, advantages_R_T, k_positive, k_negative)
    lambda_R_T = _by_sign(encouraged_R_T, advantages_R_T, lambda_positive, lambda_negative)
    phi_R_T = xp.exp(lambda_R_T + k_R_T * log_w_R_1 - lambda_R_T * xp.exp(log_w_R_1))
    return -phi_R_T * advantages_R_T * logprob_R_T


def value_loss(values_R_T: Array, returns_R_T: Array) -> Array:
    """(V - target)^2, without PPO's clipping of V."""
    return (values_R_T - returns_R_T) ** 2


def _by_sign(first_R_T: Array, like_R_T: Array, if_first: float, otherwise: float) -> Array:
    xp = array_namespace(like_R_T)
    return xp.where(first_R_T, xp.full_like(like_R_T, if_first), xp.full_like(like_R_T, otherwise))


# ---- the distance from the reference


def kl_per_token(logprob_R_T: Array, reference_logprob_R_T: Array, *, estimator: KlEstimator) -> Array:
    """Estimated KL(policy || reference) of each token in nats, (R, T), from the sampled tokens alone.

    Estimators of Schulman, "Approximating KL Divergence", 2020. k1: lp - ref, unbiased, of either sign. k2: (lp - ref)^2 / 2. k3: exp(ref - lp) - (ref - lp) - 1, unbiased and never
    negative (DeepSeekMath, equation 4).
    """
    xp = array_namespace(logprob_R_T)
    log_ratio_R_T = xp.clip(reference_logprob_R_T - logprob_R_T, -_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)
    if estimator == "k1":
        return -log_ratio_R_T
    if estimator == "k2":
        return log_ratio_R_T**2 / 2
    return xp.exp(log_ratio_R_T) - log_ratio_R_T - 1


# ---- aggregation


def token_weights(mask_R_T: Array, *, aggregation: Aggregation, max_new_tokens: int, group_size: int = 1) -> Array:
    """The weight of each token in the loss, (R, T), from the mask of the tokens that are trained on (1.0 or 0.0).

    The weights are fixed for the whole optimizer step before it is split into micro-batches: the loss is the sum of weight
    times token loss, so no split can change it.

    sequence_mean: mean over completions of their means over tokens (DeepSeekMath, equation 3). token_mean: mean over all
    tokens (DAPO, arXiv:2503.14476). constant: sum over tokens / (completions × max_new_tokens) (Dr. GRPO). sequence_sum:
    mean over completions of their sums over tokens (LUSPO, arXiv:2602.05261). group_sum, group_token_mean: mean over
    prompts of the group's sum of such sums, or of such means; a group's rows stand together.
    A completion without a token that is trained on counts in no mean, nor does a prompt without such a completion. If no
    token is trained on, every weight is 0.
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
