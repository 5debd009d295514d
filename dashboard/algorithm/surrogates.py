"""The surrogates as people read of them: what each does to a token, its settings' names, and how hard it pulls."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from backend.contract.algorithm import Algorithm, Kl
from backend.contract.base import Json
from backend.contract.surrogate import Cispo, Clip, Surrogate
from dashboard.stored import part
from worker.algorithms.objective import TokenTerms, token_terms

SURROGATE: TypeAdapter[Surrogate] = TypeAdapter(Surrogate)
Values = NDArray[np.float64]
_STEP = 1e-5  # of the log-prob: central differences are then good for nine digits


@dataclass(frozen=True)
class Words:
    """One kind of surrogate in words. Everything else that the pages need to know of it stands in the contract."""

    sentence: str
    pull: str  # what becomes of a token's advantage, with the surrogate's settings by their names
    labels: Mapping[str, str] = field(default_factory=dict)  # of its settings
    range: tuple[str, ...] = ()  # the settings that say where a ratio is cut


WORDS: Mapping[str, Words] = {
    "clip": Words(
        "min(r·A, clip(r, 1 − ε, 1 + ε)·A), from PPO and GRPO. Where the line is flat the gradient is 0: the token has moved far "
        "enough in the direction that its advantage wants.",
        pull="advantage × ratio, and 0 where the ratio is clipped: such a token is pushed no further",
        labels={"epsilon_low": "ε low", "epsilon_high": "ε high", "delta": "δ"},
        range=("epsilon_low", "epsilon_high"),
    ),
    "cispo": Words(
        "min(r, cap)·A·log p, the weight without gradient (CISPO). Every token keeps its pull: beyond the cap it just pulls no harder.",
        pull="advantage × ratio, the ratio counted as {cap:g} at most",
        labels={"cap": "cap"},
        range=("cap",),
    ),
    "sapo": Words(
        "4/τ · sigmoid(τ(r − 1)) · A (SAPO): clipping as a soft gate. The pull fades on both sides instead of ending at an edge.",
        pull="advantage × a smooth gate, which is 1 at ratio 1 and shuts as the ratio moves away",
        labels={"tau_positive": "τ, A > 0", "tau_negative": "τ, else"},
    ),
    "vespo": Words(
        "φ(r)·A·log p, φ(r) = e^λ r^k e^(−λr) without gradient (VESPO): full pull on policy, fading to either side.",
        pull="advantage × φ, which is 1 where the whole completion's ratio is 1 and falls as it moves away",
        labels={
            "k_positive": "k, A ≥ 0",
            "lambda_positive": "λ, A ≥ 0",
            "k_negative": "k, A < 0",
            "lambda_negative": "λ, A < 0",
        },
    ),
    "policy_gradient": Words(
        "A·log p, no ratio and no clipping (vanilla policy gradient; with softmax weights, a weighted likelihood). Nothing ever "
        "holds a token back.",
        pull="the advantage alone: this surrogate has no ratio",
    ),
}
"""Those that weigh tokens, in the order in which they are offered: DPO's loss is of pairs of completions."""


def stored_surrogate(config: Mapping[str, Json]) -> Surrogate | None:
    """The surrogate of a stored configuration; None if it weighs no tokens, or if this version cannot read it."""
    chosen = part(SURROGATE, config, "algorithm.surrogate", None)
    return chosen if chosen is not None and chosen.kind in WORDS else None


def pull_in_words(surrogate: Surrogate) -> str:
    """What becomes of a token's advantage."""
    return WORDS[surrogate.kind].pull.format(**surrogate.model_dump())


def free_range(surrogate: Surrogate) -> tuple[float, float] | None:
    """The ratios that are not cut; None if the surrogate has no such range."""
    if isinstance(surrogate, Clip):
        return 1 - surrogate.epsilon_low, 1 + surrogate.epsilon_high
    return (0.0, surrogate.cap) if isinstance(surrogate, Cispo) else None


def algorithm_of(surrogate: Surrogate, kl: Kl | None = None) -> Algorithm:
    """The loss of completions of one token: with the ratio that the surrogate takes, and no penalty unless one is given."""
    ratio = "sequence_product" if surrogate.weighs == "completions" else "token"
    return Algorithm(surrogate=surrogate, ratio=ratio, kl=kl or Kl(beta=0))


def token_losses(
    algorithm: Algorithm,
    logprob_R: Values,
    old_logprob_R: Values,
    advantage_R: Values,
    *,
    reference: float | None = None,
) -> Values:
    """The trainer's loss of R completions of one token each, (R,); `reference` is the log-prob of all under the reference."""
    terms: TokenTerms = token_terms(
        algorithm,
        logprob_R_T=logprob_R[:, None],
        old_logprob_R_T=old_logprob_R[:, None],
        reference_logprob_R_T=None if reference is None else np.full_like(logprob_R, reference)[:, None],
        advantages_R_T=advantage_R[:, None],
        mask_R_T=np.ones_like(logprob_R)[:, None],
    )
    return np.asarray(terms.loss_R_T[:, 0])


def pulls(surrogate: Surrogate, ratio_T: Values, advantage_T: Values) -> Values:
    """Minus the slope of each token's surrogate loss in its log-prob, by the trainer's own function. (T,)

    Before the KL penalty, and before tokens are averaged. A ratio of the whole completion counts as each token's. NaN
    if the ratio or the advantage is.
    """
    algorithm, log_ratio_T = algorithm_of(surrogate), np.log(np.maximum(ratio_T, 1e-300))

    def losses(logprob: float, old_logprob_T: Values) -> Values:
        return token_losses(algorithm, np.full_like(log_ratio_T, logprob), old_logprob_T, advantage_T)

    if surrogate.constant_weight:  # times −log p, and −log p is 1
        return losses(-1.0, -1.0 - log_ratio_T)
    return (losses(-_STEP, -log_ratio_T) - losses(_STEP, -log_ratio_T)) / (2 * _STEP)
