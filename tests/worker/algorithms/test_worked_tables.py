"""The numbers of the source documents, to the digits that they print."""

import math

import numpy as np
import pytest
import torch

from worker.algorithms.advantages import group_center, group_statistics, group_zscore
from worker.algorithms.kl import kl_per_token
from worker.algorithms.ratios import importance_ratio
from worker.algorithms.surrogates import clip

FOUR_OF_EIGHT = np.array([[1.0, 1, 1, 1, 0, 0, 0, 0]])
SIGNS = np.array([[1.0, 1, 1, 1, -1, -1, -1, -1]])


def test_the_table_with_sample_std() -> None:
    statistics = group_statistics(FOUR_OF_EIGHT, std="sample")
    assert statistics.mean_P[0] == 0.5
    assert round(float(statistics.std_P[0]), 4) == 0.5345
    advantages = group_zscore(FOUR_OF_EIGHT, std="sample", eps=1e-8)
    np.testing.assert_array_equal(np.round(advantages, 4), 0.9354 * SIGNS)
    np.testing.assert_array_equal(np.round(advantages, 2), 0.94 * SIGNS)
    np.testing.assert_array_equal(np.round(group_zscore(FOUR_OF_EIGHT, std="sample", eps=1e-4), 4), 0.9352 * SIGNS)


def test_the_code_with_population_std() -> None:
    assert group_statistics(FOUR_OF_EIGHT, std="population").std_P[0] == 0.5
    np.testing.assert_allclose(group_zscore(FOUR_OF_EIGHT, std="population", eps=1e-8), SIGNS, atol=1e-7)


@pytest.mark.parametrize(
    ("new", "old", "ratio", "clipped"), [(0.9, 0.5, 1.8, 1.2), (0.2, 0.5, 0.4, 0.8), (0.7, 0.5, 1.4, 1.2)]
)
def test_the_ratios_of_the_worked_cases(new: float, old: float, ratio: float, clipped: float) -> None:
    measured = importance_ratio(
        np.array([[math.log(new)]]), np.array([[math.log(old)]]), np.ones((1, 1)), level="token"
    )
    assert measured[0, 0] == pytest.approx(ratio)
    # An advantage whose sign makes the clipped term the smaller one shows the bound itself.
    sign = 1.0 if ratio > 1 else -1.0
    assert clip(measured, np.array([[sign]]), epsilon_low=0.2, epsilon_high=0.2)[0, 0] == pytest.approx(-sign * clipped)


def test_numpy_and_torch_agree() -> None:
    rewards = np.array([[0.2, 0.9, np.nan, 0.4], [1.0, 0.0, 1.0, 1.0]])
    for estimate in (lambda r: group_zscore(r, std="sample", eps=1e-4), group_center):
        np.testing.assert_allclose(estimate(torch.tensor(rewards)).numpy(), estimate(rewards), rtol=1e-12)


@pytest.mark.parametrize("value", [0.1, 0.3, 1 / 3, 1e12])
def test_equal_rewards_give_exactly_zero(value: float) -> None:
    assert not group_zscore(np.full((1, 7), value), std="population", eps=1e-8).any()
    assert not group_center(np.full((1, 7), value)).any()


def test_an_unscored_completion_moves_neither_baseline_nor_policy() -> None:
    with_gap = group_zscore(np.array([[1.0, np.nan, 0.0, 1.0]]), std="population", eps=1e-8)
    without = group_zscore(np.array([[1.0, 0.0, 1.0]]), std="population", eps=1e-8)
    np.testing.assert_allclose(with_gap[0, [0, 2, 3]], without[0])
    assert with_gap[0, 1] == 0


def test_one_scored_completion_is_no_group() -> None:
    assert not group_zscore(np.array([[np.nan, 1.0, np.nan]]), std="population", eps=1e-8).any()


def test_k3_is_zero_and_flat_where_the_policies_are_equal() -> None:
    logprob = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    kl = kl_per_token(logprob, logprob.detach(), estimator="k3")
    kl.sum().backward()
    assert kl.detach().tolist() == [[0.0, 0.0]]
    assert logprob.grad is not None
    assert logprob.grad.tolist() == [[0.0, 0.0]]


def test_k3_stays_finite_for_a_token_that_became_impossible() -> None:
    kl = kl_per_token(torch.tensor([[-500.0]]), torch.tensor([[-0.1]]), estimator="k3")
    assert torch.isfinite(kl).all()


def test_kl_estimators_on_a_known_ratio() -> None:
    logprob, reference = np.array([[-1.0]]), np.array([[-1.5]])
    assert kl_per_token(logprob, reference, estimator="k1")[0, 0] == 0.5
    assert kl_per_token(logprob, reference, estimator="k2")[0, 0] == 0.125
    assert kl_per_token(logprob, reference, estimator="k3")[0, 0] == pytest.approx(math.exp(-0.5) + 0.5 - 1)


def test_sequence_ratios_are_one_number_for_the_completion() -> None:
    new, old = np.log([[0.5, 0.4, 0.9]]), np.log([[0.25, 0.4, 0.1]])
    mask = np.array([[1.0, 1.0, 0.0]])
    np.testing.assert_allclose(importance_ratio(new, old, mask, level="sequence_product"), np.full((1, 3), 2.0))
    np.testing.assert_allclose(importance_ratio(new, old, mask, level="sequence_mean"), np.full((1, 3), math.sqrt(2)))
