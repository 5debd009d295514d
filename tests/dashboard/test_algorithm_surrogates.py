"""What colours a token by advantage × weight is what the trainer's gradient does to it."""

import math

import numpy as np
import pytest
import torch

from backend.contract.algorithm import Algorithm, Kl
from backend.contract.grpo import GrpoConfig
from backend.contract.surrogate import Cispo, Clip, Dpo, PolicyGradient, Sapo, Surrogate, Vespo
from dashboard.algorithm.surrogates import pull_in_words, pulls, stored_surrogate
from worker.algorithms.objective import token_terms

MOVES = (-0.5, -0.1, 0.0, 0.1, 0.5)  # of the log-prob; with ε = 0.2 the outer two are outside the clip range


def gradient(algorithm: Algorithm, moves: tuple[float, ...], advantage: float) -> list[float]:
    """Minus the slope of one completion's summed token losses, by torch."""
    old = torch.linspace(-2.0, -1.0, len(moves), dtype=torch.float64)[None]
    logprob = (old + torch.tensor([moves], dtype=torch.float64)).requires_grad_()
    terms = token_terms(
        algorithm,
        logprob_R_T=logprob,
        old_logprob_R_T=old,
        advantages_R_T=torch.tensor([[advantage]], dtype=torch.float64),
        mask_R_T=torch.ones_like(old),
    )
    (slope,) = torch.autograd.grad(-terms.loss_R_T.sum(), logprob)
    return [float(value) for value in slope[0]]


@pytest.mark.parametrize("advantage", [0.77, -1.29])
@pytest.mark.parametrize("surrogate", [Clip(), Clip(delta=1.5), PolicyGradient(), Cispo(cap=1.2), Sapo()])
def test_the_pull_is_the_gradient_of_the_tokens_loss(surrogate: Surrogate, advantage: float) -> None:
    pulled = pulls(surrogate, np.exp(MOVES), np.full(len(MOVES), advantage))
    expected = gradient(Algorithm(surrogate=surrogate, kl=Kl(beta=0)), MOVES, advantage)
    np.testing.assert_allclose(pulled, expected, rtol=1e-7, atol=1e-9)


def test_a_ratio_of_the_whole_completion_pulls_at_each_of_its_tokens() -> None:
    moves = (-0.3, 0.1, 0.5)
    gspo = Algorithm(surrogate=Clip(), ratio="sequence_mean", kl=Kl(beta=0))
    vespo = Algorithm(surrogate=Vespo(), ratio="sequence_product", kl=Kl(beta=0))
    for algorithm, ratio in ((gspo, math.exp(sum(moves) / 3)), (vespo, math.exp(sum(moves)))):
        pulled = pulls(algorithm.surrogate, np.full(3, ratio), np.full(3, 0.77))
        np.testing.assert_allclose(pulled, gradient(algorithm, moves, 0.77), rtol=1e-7)


def test_a_ratio_that_is_not_known_or_vanished_pulls_by_nothing_known_or_nothing() -> None:
    pulled = pulls(Clip(), np.array([math.nan, 0.0]), np.array([1.0, 1.0]))
    assert math.isnan(pulled[0])
    assert pulled[1] == pytest.approx(0)


@pytest.mark.parametrize("surrogate", [Clip(), PolicyGradient(), Cispo(), Sapo(), Vespo()])
def test_the_stored_surrogate_is_the_one_that_trained(surrogate: Surrogate) -> None:
    config = GrpoConfig().model_dump(mode="json")
    config["algorithm"]["surrogate"] = surrogate.model_dump(mode="json")
    stored = stored_surrogate(config)
    assert stored == surrogate
    assert pull_in_words(stored).startswith(("advantage", "the advantage"))


@pytest.mark.parametrize("surrogate", [Dpo().model_dump(), {"kind": "of a later version"}, None])
def test_where_no_surrogate_weighs_tokens_there_is_none(surrogate: object) -> None:
    config = GrpoConfig().model_dump(mode="json")
    config["algorithm"]["surrogate"] = surrogate
    assert stored_surrogate(config) is None
    assert stored_surrogate({"kind": "sample"}) is None
