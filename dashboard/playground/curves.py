"""The trainer's own loss terms, drawn over the ratio, and its KL estimators over the log-ratio."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.contract.algorithm import Algorithm, Kl
from backend.contract.surrogate import Surrogate
from worker.algorithms.kl import KlEstimator, kl_per_token
from worker.algorithms.objective import TokenTerms, token_terms

Values = NDArray[np.float64]
CONSTANT_WEIGHT = ("policy_gradient", "cispo", "vespo")  # A log p times a weight that carries no gradient
KL_ESTIMATORS: tuple[KlEstimator, ...] = ("k1", "k2", "k3")
_POINTS = 251


class Traced(NamedTuple):
    """A function over the ratio, and its value at the point that a person moves."""

    x: Values
    y: Values
    at: float


def algorithm_of(surrogate: Surrogate, kl: Kl | None = None) -> Algorithm:
    """The loss of one token: with the ratio that the surrogate takes, and no penalty unless one is given."""
    ratio = "sequence_product" if surrogate.kind == "vespo" else "token"
    return Algorithm(surrogate=surrogate, ratio=ratio, kl=kl or Kl(beta=0))


def ratios(surrogate: Surrogate, new: float, old: float) -> Values:
    """The ratios to draw: to 2.5, or as far as the point. A log-probability above 0 does not exist, so those end at 1 / old."""
    highest = max(2.5, 1.15 * new / old)
    if surrogate.kind in CONSTANT_WEIGHT:
        highest = min(highest, 1 / old)
    return np.linspace(0.02, highest, _POINTS)


def objective(surrogate: Surrogate, advantage: float, new: float, old: float) -> Traced:
    """What the trainer maximises for a token of this advantage: minus its loss term."""
    x = ratios(surrogate, new, old)
    return Traced(
        x, -_terms(surrogate, advantage, x * old, old), float(-_terms(surrogate, advantage, np.array([new]), old)[0])
    )


def pull(surrogate: Surrogate, advantage: float, new: float, old: float) -> Traced:
    """The objective's slope in the token's log-probability: how hard, and which way, the gradient pulls."""
    x = ratios(surrogate, new, old)
    return Traced(
        x, _slope(surrogate, advantage, x * old, old), float(_slope(surrogate, advantage, np.array([new]), old)[0])
    )


def _slope(surrogate: Surrogate, advantage: float, new: Values, old: float) -> Values:
    if surrogate.kind in CONSTANT_WEIGHT:
        safe = np.minimum(new, 1 - 1e-9)  # the term is weight × log p, and log 1 is 0
        return np.asarray(-_terms(surrogate, advantage, safe, old) / np.log(safe))
    step = 1e-5
    above = _terms(surrogate, advantage, new * math.exp(step), old)
    below = _terms(surrogate, advantage, new * math.exp(-step), old)
    return ((below - above) / (2 * step)).round(8)  # as many digits as the difference is good for


def _terms(surrogate: Surrogate, advantage: float, new: Values, old: float) -> Values:
    """The loss of one token each."""
    return np.asarray(one_token(algorithm_of(surrogate), new, old, advantage).loss_R_T[:, 0])


def one_token(
    algorithm: Algorithm, new: Values, old: float, advantage: float, reference: float | None = None
) -> TokenTerms:
    """The trainer's terms for completions of one token, whose probabilities are `new`: each of shape (R, 1)."""
    logprob_R_1 = np.log(new)[:, None]
    return token_terms(
        algorithm,
        logprob_R_T=logprob_R_1,
        old_logprob_R_T=np.full_like(logprob_R_1, math.log(old)),
        reference_logprob_R_T=None if reference is None else np.full_like(logprob_R_1, math.log(reference)),
        advantages_R_T=np.full_like(logprob_R_1, advantage),
        mask_R_T=np.ones_like(logprob_R_1),
    )


def kl_curve(estimator: KlEstimator, new: float, reference: float) -> Traced:
    """An estimator of the KL over log p − log p_ref, in nats."""
    at = math.log(new / reference)
    x = np.linspace(min(-2.0, 1.1 * at), max(2.5, 1.1 * at), _POINTS)
    return Traced(x, _kl(estimator, x), float(_kl(estimator, np.array([at]))[0]))


def _kl(estimator: KlEstimator, log_ratio: Values) -> Values:
    return np.asarray(kl_per_token(log_ratio[:, None], np.zeros_like(log_ratio)[:, None], estimator=estimator)[:, 0])
