"""Generalised advantage estimation: one advantage for each token, from a learned value of each prefix.

Tokens are (R, T): R rows, padded on the right; the mask is 1.0 at the tokens of the completion and 0.0 after them.
"""

from array_api_compat import array_namespace

from worker.algorithms.advantages import group_zscore
from worker.algorithms.arrays import Array, stop_gradient

_EPS = 1e-8


def last_token_rewards(rewards_R: Array, mask_R_T: Array) -> Array:
    """Each completion's reward on its last token, 0 on the others, (R, T). An unscored completion (NaN) gets zeros."""
    xp = array_namespace(mask_R_T)
    known_R = xp.where(xp.isnan(rewards_R), xp.zeros_like(rewards_R), rewards_R)
    return known_R[:, None] * mask_R_T * (1 - _next(mask_R_T))


def gae(rewards_R_T: Array, values_R_T: Array, mask_R_T: Array, *, gamma: float, lam: float) -> tuple[Array, Array]:
    """Advantages and the value head's targets, each (R, T) and 0 at padding (GAE, arXiv:1506.02438, equations 11 to 16).

    delta_t = r_t + gamma V_{t+1} - V_t, with V = 0 after the last token; A_t = delta_t + gamma lam A_{t+1}. lam 0 is the
    one-step TD error, lam 1 is Monte Carlo. The targets are A + V. Everything is a constant: no gradient flows through.
    """
    xp = array_namespace(rewards_R_T)
    values_R_T = stop_gradient(values_R_T) * mask_R_T
    delta_R_T = (rewards_R_T + gamma * _next(values_R_T) - values_R_T) * mask_R_T
    advantage_R = xp.zeros_like(delta_R_T[:, 0])
    backwards = []
    for t in reversed(range(delta_R_T.shape[1])):
        advantage_R = delta_R_T[:, t] + gamma * lam * advantage_R
        backwards.append(advantage_R)
    advantages_R_T = xp.stack(backwards[::-1], axis=1)
    return advantages_R_T, advantages_R_T + values_R_T


def normalize(advantages_R_T: Array, mask_R_T: Array) -> Array:
    """Z-score over the batch's tokens, with their population std; zeros at padding, and everywhere if all are equal."""
    xp = array_namespace(advantages_R_T)
    of_token_R_T = xp.where(mask_R_T > 0, advantages_R_T, xp.full_like(advantages_R_T, xp.nan))
    tokens = xp.reshape(of_token_R_T, (1, -1))
    return xp.reshape(group_zscore(tokens, std="population", eps=_EPS), advantages_R_T.shape)


def _next(values_R_T: Array) -> Array:
    """The value at the next token; 0 after the last."""
    xp = array_namespace(values_R_T)
    return xp.concat([values_R_T[:, 1:], xp.zeros_like(values_R_T[:, :1])], axis=1)
