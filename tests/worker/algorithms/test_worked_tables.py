"""The numbers of the source documents, to the digits that they print."""

import math

import numpy as np
import pytest
import torch

from backend.contract.algorithm import Algorithm, Kl
from worker.algorithms.advantages import group_statistics, group_zscore, softmax
from worker.algorithms.objective import clip, importance_ratio, kl_per_token, token_terms, token_weights

FOUR_OF_EIGHT = np.array([[1.0, 1, 1, 1, 0, 0, 0, 0]])
SIGNS = np.array([[1.0, 1, 1, 1, -1, -1, -1, -1]])


def test_the_table_with_sample_std_the_code_with_population_std_and_the_same_rewards_under_softmax() -> None:
    statistics = group_statistics(FOUR_OF_EIGHT, std="sample")
    assert statistics.mean_P[0] == 0.5
    assert round(float(statistics.std_P[0]), 4) == 0.5345
    advantages = group_zscore(FOUR_OF_EIGHT, std="sample", eps=1e-8)
    np.testing.assert_array_equal(np.round(advantages, 4), 0.9354 * SIGNS)
    np.testing.assert_array_equal(np.round(advantages, 2), 0.94 * SIGNS)
    np.testing.assert_array_equal(np.round(group_zscore(FOUR_OF_EIGHT, std="sample", eps=1e-4), 4), 0.9352 * SIGNS)
    assert group_statistics(FOUR_OF_EIGHT, std="population").std_P[0] == 0.5
    np.testing.assert_allclose(group_zscore(FOUR_OF_EIGHT, std="population", eps=1e-8), SIGNS, atol=1e-7)
    np.testing.assert_array_equal(np.round(softmax(FOUR_OF_EIGHT), 5), [[0.18276] * 4 + [0.06724] * 4])


@pytest.mark.parametrize(
    ("new", "old", "ratio", "clipped"), [(0.9, 0.5, 1.8, 1.2), (0.2, 0.5, 0.4, 0.8), (0.7, 0.5, 1.4, 1.2)]
)
def test_the_ratios_of_the_worked_cases(new: float, old: float, ratio: float, clipped: float) -> None:
    found = importance_ratio(np.array([[math.log(new)]]), np.array([[math.log(old)]]), np.ones((1, 1)), level="token")
    assert found[0, 0] == pytest.approx(ratio)
    # An advantage whose sign makes the clipped term the smaller one shows the bound itself.
    sign = 1.0 if ratio > 1 else -1.0
    assert clip(found, np.array([[sign]]), epsilon_low=0.2, epsilon_high=0.2)[0, 0] == pytest.approx(-sign * clipped)


def test_on_policy_the_loss_is_zero_and_its_gradient_is_not() -> None:
    logprob = torch.log_softmax(torch.randn(8, 5, generator=torch.Generator().manual_seed(0)), -1).requires_grad_()
    mask = (torch.arange(5) < torch.tensor([5, 3, 1, 4, 2, 5, 4, 1])[:, None]).float()
    terms = token_terms(
        Algorithm(kl=Kl(beta=0)),
        logprob_R_T=logprob,
        old_logprob_R_T=logprob.detach(),
        advantages_R_T=group_zscore(torch.tensor(FOUR_OF_EIGHT), std="population", eps=1e-8).float().reshape(8, 1),
        mask_R_T=mask,
    )
    assert (terms.ratio_R_T == 1).all()
    assert not terms.low_R_T.any()
    assert not terms.high_R_T.any()
    loss = (token_weights(mask, aggregation="sequence_mean", max_new_tokens=5) * terms.loss_R_T).sum()
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-7)
    assert logprob.grad is not None
    assert (logprob.grad.norm(dim=1) > 0.05).all()


def test_with_beta_only_the_loss_is_flat_at_the_reference() -> None:
    logprob = torch.tensor([[-1.0, -2.0], [-0.5, -3.0]], requires_grad=True)
    terms = token_terms(
        Algorithm(kl=Kl(beta=0.04, estimator="k3")),
        logprob_R_T=logprob,
        old_logprob_R_T=logprob.detach(),
        advantages_R_T=torch.zeros(2, 1),
        mask_R_T=torch.ones(2, 2),
        reference_logprob_R_T=logprob.detach(),
    )
    terms.loss_R_T.sum().backward()
    assert not terms.loss_R_T.detach().any()
    assert logprob.grad is not None
    assert not logprob.grad.any()


def test_kl_estimators_on_a_known_ratio_and_k3_of_a_token_that_became_impossible() -> None:
    logprob, reference = np.array([[-1.0]]), np.array([[-1.5]])
    assert kl_per_token(logprob, reference, estimator="k1")[0, 0] == 0.5
    assert kl_per_token(logprob, reference, estimator="k2")[0, 0] == 0.125
    assert kl_per_token(logprob, reference, estimator="k3")[0, 0] == pytest.approx(math.exp(-0.5) + 0.5 - 1)
    assert torch.isfinite(kl_per_token(torch.tensor([[-500.0]]), torch.tensor([[-0.1]]), estimator="k3")).all()


def test_sequence_ratios_are_one_number_for_the_completion() -> None:
    new, old = np.log([[0.5, 0.4, 0.9]]), np.log([[0.25, 0.4, 0.1]])
    mask = np.array([[1.0, 1.0, 0.0]])
    np.testing.assert_allclose(importance_ratio(new, old, mask, level="sequence_product"), np.full((1, 3), 2.0))
    np.testing.assert_allclose(importance_ratio(new, old, mask, level="sequence_mean"), np.full((1, 3), math.sqrt(2)))
