"""The loss of one batch of rows, composed along the axes of `Algorithm`: the learner and the Playground both call it."""

from typing import NamedTuple

from array_api_compat import array_namespace

from backend.contract.algorithm import Algorithm
from backend.contract.surrogate import Cispo, Clip, Dpo, PolicyGradient, Sapo, Surrogate, Vespo
from worker.algorithms import surrogates
from worker.algorithms.arrays import Array
from worker.algorithms.kl import kl_per_token
from worker.algorithms.ratios import importance_ratio


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
        loss_R_T = loss_R_T + algorithm.advantage.value_coefficient * surrogates.value_loss(values_R_T, returns_R_T)
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
            return surrogates.clip(ratio_R_T, advantages_R_T, epsilon_low=low, epsilon_high=high, delta=delta)
        case PolicyGradient():
            return surrogates.policy_gradient(logprob_R_T, advantages_R_T)
        case Cispo(cap=cap):
            return surrogates.cispo(ratio_R_T, logprob_R_T, advantages_R_T, cap=cap)
        case Sapo(tau_positive=positive, tau_negative=negative):
            return surrogates.sapo(ratio_R_T, advantages_R_T, tau_positive=positive, tau_negative=negative)
        case Vespo():
            return surrogates.vespo(
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
                surrogates.clipped_low(ratio_R_T, advantages_R_T, epsilon_low=low),
                surrogates.clipped_high(ratio_R_T, advantages_R_T, epsilon_high=high),
            )
        case Cispo(cap=cap):
            return never_R_T, (ratio_R_T > cap) & (advantages_R_T > 0)
        case _:
            return never_R_T, never_R_T
