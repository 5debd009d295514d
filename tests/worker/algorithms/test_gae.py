"""Generalised advantage estimation against a plain double loop."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from worker.algorithms.gae import gae, last_token_rewards, normalize

Floats = NDArray[np.float64]
LENGTHS = [5, 1, 3]


def batch(seed: int) -> tuple[Floats, Floats, Floats]:
    """Rewards, values and mask of rows of 5, 1 and 3 tokens, with rubbish at the padding."""
    generator = np.random.default_rng(seed)
    mask = (np.arange(5) < np.array(LENGTHS)[:, None]).astype(float)
    return generator.normal(size=(3, 5)), generator.normal(size=(3, 5)), mask


def double_loop(rewards: Floats, values: Floats, gamma: float, lam: float) -> list[list[float]]:
    """A_t = sum over l of (gamma lam)^l delta_{t+l}, for each row and token by itself."""
    rows = []
    for r, length in enumerate(LENGTHS):
        after = [*values[r, :length].tolist(), 0.0]
        delta = [float(rewards[r, t]) + gamma * after[t + 1] - after[t] for t in range(length)]
        sums = [math.fsum((gamma * lam) ** (s - t) * delta[s] for s in range(t, length)) for t in range(length)]
        rows.append(sums + [0.0] * (5 - length))
    return rows


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.0])
@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_gae_equals_a_double_loop(gamma: float, lam: float, seed: int) -> None:
    rewards, values, mask = batch(seed)
    advantages, returns = gae(rewards, values, mask, gamma=gamma, lam=lam)
    np.testing.assert_allclose(advantages, double_loop(rewards, values, gamma, lam), atol=1e-12)
    np.testing.assert_allclose(returns, (advantages + values) * mask, atol=1e-12)


def test_the_target_is_a_constant_for_the_value_head() -> None:
    rewards, values, mask = (torch.tensor(array) for array in batch(0))
    for result in gae(rewards, values.requires_grad_(), mask, gamma=1, lam=0.95):
        assert not result.requires_grad


def test_the_reward_lies_on_the_last_token_alone() -> None:
    mask = np.array([[1.0, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 0]])
    rewards = last_token_rewards(np.array([0.5, -2, math.nan, 3]), mask)
    np.testing.assert_array_equal(rewards, [[0, 0, 0.5], [-2, 0, 0], [0, 0, 0], [0, 0, 0]])


def test_normalised_advantages_have_mean_zero_and_std_one_over_the_tokens_and_equal_ones_are_exactly_zero() -> None:
    advantages, _, mask = batch(0)
    measured = normalize(advantages, mask)
    assert measured[mask > 0].mean() == pytest.approx(0, abs=1e-12)
    assert measured[mask > 0].std() == pytest.approx(1)
    assert not measured[mask == 0].any()
    for value in (0.1, 1 / 3, 1e6):
        assert not normalize((value * mask).astype(np.float32), mask.astype(np.float32)).any()
