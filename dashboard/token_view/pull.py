"""How hard the loss pulls at each token: the advantage times the weight that the surrogate gives it."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from backend.contract.algorithm import Algorithm, Kl
from backend.contract.base import Json
from backend.contract.surrogate import Cispo, Clip, Dpo, PolicyGradient, Sapo, Surrogate, Vespo
from dashboard.form.paths import get
from worker.algorithms.objective import token_terms

Values = NDArray[np.float64]
Weighing = Clip | PolicyGradient | Cispo | Sapo | Vespo
"""The surrogates that weigh tokens; DPO's loss is of pairs of completions."""

_STEP = 1e-5  # of the log-prob: central differences are then good for nine digits
_SURROGATE: TypeAdapter[Surrogate] = TypeAdapter(Surrogate)


def stored_surrogate(config: Mapping[str, Json]) -> Weighing | None:
    """The surrogate that the run was stored with; None where it weighs no tokens, or this program does not know it."""
    try:
        chosen = _SURROGATE.validate_python(get(dict(config), "algorithm.surrogate"))
    except ValidationError:
        return None
    return None if isinstance(chosen, Dpo) else chosen


def pulls(surrogate: Weighing, ratio_T: Values, advantage_T: Values) -> Values:
    """Minus the slope of each token's surrogate loss in its log-prob, by the trainer's own function. (T,)

    Before the KL penalty, and before tokens are averaged. A ratio of the whole completion counts as each token's. NaN
    where the ratio or the advantage is.
    """
    log_ratio_T = np.log(np.maximum(ratio_T, 1e-300))
    if isinstance(surrogate, Clip | Sapo):  # functions of the ratio: at log-prob 0, and a little beside it
        below_T = _losses(surrogate, -_STEP, -log_ratio_T, advantage_T)
        above_T = _losses(surrogate, _STEP, -log_ratio_T, advantage_T)
        return (below_T - above_T) / (2 * _STEP)
    return _losses(surrogate, -1.0, -1.0 - log_ratio_T, advantage_T)  # a constant weight times −log p, and −log p is 1


def in_words(surrogate: Weighing) -> str:
    """What becomes of the advantage."""
    match surrogate:
        case Clip():
            return "advantage × ratio, and 0 where the ratio is clipped: such a token is pushed no further"
        case PolicyGradient():
            return "the advantage alone: this surrogate has no ratio"
        case Cispo(cap=cap):
            return f"advantage × ratio, the ratio counted as {cap:g} at most"
        case Sapo():
            return "advantage × a smooth gate, which is 1 at ratio 1 and shuts as the ratio moves away"
        case Vespo():
            return "advantage × φ, which is 1 where the whole completion's ratio is 1 and falls as it moves away"


def _losses(surrogate: Weighing, logprob: float, old_logprob_T: Values, advantage_T: Values) -> Values:
    """The surrogate's loss of tokens that are all at this log-prob, each as a completion of its own. (T,)"""
    old_logprob_T_1 = old_logprob_T[:, None]
    terms = token_terms(
        Algorithm(
            surrogate=surrogate, ratio="sequence_product" if surrogate.kind == "vespo" else "token", kl=Kl(beta=0)
        ),
        logprob_R_T=np.full_like(old_logprob_T_1, logprob),
        old_logprob_R_T=old_logprob_T_1,
        advantages_R_T=advantage_T[:, None],
        mask_R_T=np.ones_like(old_logprob_T_1),
    )
    return np.asarray(terms.loss_R_T[:, 0])
