"""The surrogate losses: their gradients, and where they stop."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from backend.contract.surrogate import Vespo
from worker.algorithms import objective
from worker.algorithms.objective import bounded_log_ratio

OLD = torch.tensor([[-1.0, -0.5, -2.0], [-0.3, -1.5, -0.7]], dtype=torch.float64)
ADVANTAGES = torch.tensor([[1.3], [-0.4]], dtype=torch.float64)
MASK = torch.tensor([[1.0, 1, 1], [1, 1, 0]], dtype=torch.float64)
VESPO = Vespo().model_dump(exclude={"kind"})

Loss = Callable[[Tensor], Tensor]
SURROGATES: dict[str, Loss] = {
    "clip": lambda lp: objective.clip(torch.exp(lp - OLD), ADVANTAGES, epsilon_low=0.2, epsilon_high=0.2),
    "policy_gradient": lambda lp: objective.policy_gradient(lp, ADVANTAGES),
    "cispo": lambda lp: objective.cispo(torch.exp(lp - OLD), lp, ADVANTAGES, cap=5.0),
    "sapo": lambda lp: objective.sapo(torch.exp(lp - OLD), ADVANTAGES, tau_positive=1.0, tau_negative=1.05),
    "vespo": lambda lp: objective.vespo(lp, OLD, MASK, ADVANTAGES, **VESPO),
}


def gradient(loss: Loss, logprob: Tensor) -> Tensor:
    leaf = logprob.clone().requires_grad_()
    loss(leaf).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


@pytest.mark.parametrize("name", SURROGATES)
def test_on_policy_every_surrogate_has_the_policy_gradients_slope(name: str) -> None:
    torch.testing.assert_close(gradient(SURROGATES[name], OLD), -ADVANTAGES.expand_as(OLD))


def test_cispo_weighs_a_far_token_by_the_cap_and_never_silences_it() -> None:
    logprob = OLD + math.log(8.0)
    torch.testing.assert_close(gradient(SURROGATES["cispo"], logprob), (-5 * ADVANTAGES).expand_as(OLD))
    assert not gradient(SURROGATES["clip"], logprob)[0].any()


@pytest.mark.parametrize(("advantage", "tau"), [(1.5, 2.0), (0.0, 3.0), (-1.5, 3.0)])
def test_sapo_is_its_formula_with_the_temperature_of_the_sign(advantage: float, tau: float) -> None:
    loss = objective.sapo(np.array([[1.7]]), np.array([[advantage]]), tau_positive=2.0, tau_negative=3.0)
    assert loss[0, 0] == pytest.approx(-4 / tau / (1 + math.exp(-tau * 0.7)) * advantage)


def test_a_sharp_sapo_gate_keeps_a_finite_gradient() -> None:
    ratio = torch.tensor([[0.0, 1.0, 1e30]], requires_grad=True)
    objective.sapo(ratio, torch.ones(1, 1), tau_positive=100.0, tau_negative=100.0).sum().backward()
    assert ratio.grad is not None
    assert torch.isfinite(ratio.grad).all()
    assert ratio.grad[0, 1] == -1


def test_vespo_weighs_a_completion_by_phi_of_its_whole_ratio_and_stays_finite_if_it_became_impossible() -> None:
    logprob = OLD + torch.tensor([[0.1, 0.2, -0.1], [0.3, 0.1, 9.0]])  # the last is padding
    expected = []
    for w, k, lam in ((math.exp(0.2), 2, 3), (math.exp(0.4), 3, 2)):
        expected.append(math.exp(lam) * w**k * math.exp(-lam * w))
    weights = gradient(SURROGATES["vespo"], logprob) / -ADVANTAGES
    torch.testing.assert_close(weights, torch.tensor(expected).double()[:, None].expand(2, 3))
    for difference in (500.0, -500.0):
        assert torch.isfinite(gradient(SURROGATES["vespo"], OLD + difference)).all()


@pytest.mark.parametrize(
    ("differences", "bounded"),
    [([500.0, 0], 20.0), ([-30.0, -30], math.log(1e-8)), ([0.25, 0.25], 0.5), ([500.0, -19], 1.0)],
)
def test_the_log_ratio_is_bounded_for_each_token_and_completion(differences: list[float], bounded: float) -> None:
    measured = bounded_log_ratio(np.array([[*differences, 7.0]]), np.zeros((1, 3)), np.array([[1.0, 1, 0]]))
    np.testing.assert_allclose(measured, [[bounded]])


def test_delta_bounds_the_loss_of_a_discouraged_token() -> None:
    ratio, advantages = np.array([[1.5, 3.0, 50.0]]), np.array([[-1.0]])
    loss = objective.clip(ratio, advantages, epsilon_low=0.2, epsilon_high=0.2, delta=4.0)
    np.testing.assert_allclose(loss, [[1.5, 3.0, 4.0]])


def test_a_token_counts_as_clipped_only_where_its_gradient_stops() -> None:
    ratio = np.array([[0.5, 1.0, 1.5]])
    for sign, low, high in ((1.0, [False] * 3, [False, False, True]), (-1.0, [True, False, False], [False] * 3)):
        advantages = np.array([[sign]])
        assert objective.clipped_low(ratio, advantages, epsilon_low=0.2).tolist() == [low]
        assert objective.clipped_high(ratio, advantages, epsilon_high=0.2).tolist() == [high]
        leaf = torch.tensor(ratio, requires_grad=True)
        objective.clip(leaf, torch.tensor(advantages), epsilon_low=0.2, epsilon_high=0.2).sum().backward()
        assert (leaf.grad == 0).tolist() == [[lo or hi for lo, hi in zip(low, high, strict=True)]]
