"""Estimators of KL(policy || reference) from the sampled tokens alone (Schulman, "Approximating KL Divergence", 2020)."""

from typing import Literal

from array_api_compat import array_namespace

from worker.algorithms.arrays import Array

KlEstimator = Literal["k1", "k2", "k3"]

# exp overflows float32 near 88; beyond 20 the estimate says "very far" all the same, and stays finite.
_LOG_RATIO_LIMIT = 20.0


def kl_per_token(logprob_R_T: Array, reference_logprob_R_T: Array, *, estimator: KlEstimator) -> Array:
    """Estimated KL of each token in nats, shape (R, T).

    k1: lp - ref, unbiased, of either sign. k2: (lp - ref)^2 / 2. k3: exp(ref - lp) - (ref - lp) - 1, unbiased and never
    negative (DeepSeekMath, equation 4).
    """
    xp = array_namespace(logprob_R_T)
    log_ratio_R_T = xp.clip(reference_logprob_R_T - logprob_R_T, -_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)
    if estimator == "k1":
        return -log_ratio_R_T
    if estimator == "k2":
        return log_ratio_R_T**2 / 2
    return xp.exp(log_ratio_R_T) - log_ratio_R_T - 1
