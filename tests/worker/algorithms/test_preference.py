"""DPO and Bradley-Terry: loss and gradient against float64 written out with `math`, and the blog's claim."""

import math
import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from backend.contract.algorithm import Aggregation, Algorithm, Kl
from worker.algorithms.advantages import group_zscore
from worker.algorithms.objective import token_terms, token_weights
from worker.algorithms.preference import bradley_terry_loss, dpo_loss, preference_margin


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def leaf(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("beta", [0.1, 2.0])
def test_dpo_equals_a_plain_computation(beta: float) -> None:
    draw = random.Random(0)
    pairs = [[draw.gauss(-20, 3) for _ in range(50)] for _ in range(4)]
    chosen, rejected, chosen_reference, rejected_reference = (leaf(values) for values in pairs)
    losses = dpo_loss(preference_margin(chosen, rejected, chosen_reference, rejected_reference, beta=beta))
    losses.sum().backward()
    for n, (won, lost, ref_won, ref_lost) in enumerate(zip(*pairs, strict=True)):
        margin = beta * ((won - ref_won) - (lost - ref_lost))
        assert losses[n].item() == pytest.approx(-math.log(sigmoid(margin)), rel=1e-9)
        assert chosen.grad[n].item() == pytest.approx(-beta * sigmoid(-margin), rel=1e-9)
        assert rejected.grad[n].item() == pytest.approx(beta * sigmoid(-margin), rel=1e-9)


def test_bradley_terry_equals_a_plain_computation() -> None:
    draw = random.Random(1)
    rewards = [[draw.gauss(0, 3) for _ in range(50)] for _ in range(2)]
    chosen, rejected = (leaf(values) for values in rewards)
    losses = bradley_terry_loss(chosen, rejected)
    losses.sum().backward()
    for n, (better, worse) in enumerate(zip(*rewards, strict=True)):
        probability = math.exp(better) / (math.exp(better) + math.exp(worse))
        assert losses[n].item() == pytest.approx(-math.log(probability), rel=1e-9)
        assert chosen.grad[n].item() == pytest.approx(probability - 1, rel=1e-9)
        assert rejected.grad[n].item() == pytest.approx(1 - probability, rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pairs_a_thousand_apart_stay_finite_and_exact(dtype: torch.dtype) -> None:
    margin = torch.tensor([-1000.0, 0.0, 1000.0], dtype=dtype, requires_grad=True)
    losses = dpo_loss(margin)
    losses.sum().backward()
    assert losses.tolist() == pytest.approx([1000, math.log(2), 0])
    assert margin.grad.tolist() == [-1, -0.5, 0]
    np.testing.assert_allclose(dpo_loss(np.array([-1000.0, 0, 1000])), [1000, math.log(2), 0])


# ---- G = 2, rewards 1 and 0: the group-relative gradient is DPO's at the reference


class TinyPolicy(nn.Module):
    """A random network over a vocabulary of 7, which reads all tokens before the one that it predicts."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(7, 6)
        self.read = nn.GRU(6, 8, batch_first=True)
        self.head = nn.Linear(8, 7)

    def logprobs(self, tokens_R_L: Tensor) -> Tensor:
        """Log-probs of every token but the first, (R, L - 1)."""
        states, _ = self.read(self.embed(tokens_R_L[:, :-1]))
        return torch.log_softmax(self.head(states), -1).gather(-1, tokens_R_L[:, 1:, None]).squeeze(-1)


TOKENS = torch.tensor([[1, 4, 2, 6, 3], [1, 2, 2, 5, 0]])


@pytest.mark.parametrize(
    ("lengths", "aggregation", "same"),
    [([4, 4], "sequence_mean", True), ([4, 2], "sequence_mean", False), ([4, 2], "sequence_sum", True)],
)
def test_grpo_on_two_completions_takes_dpos_direction_for_equal_lengths_and_with_sums_over_tokens_for_any(
    lengths: list[int], aggregation: Aggregation, same: bool
) -> None:
    policy, mask = TinyPolicy().double(), (torch.arange(4) < torch.tensor(lengths)[:, None]).double()
    logprob = policy.logprobs(TOKENS)
    terms = token_terms(
        Algorithm(kl=Kl(beta=0)),
        logprob_R_T=logprob,
        old_logprob_R_T=logprob.detach(),
        advantages_R_T=group_zscore(torch.tensor([[1.0, 0.0]]).double(), std="population", eps=1e-8).reshape(2, 1),
        mask_R_T=mask,
    )
    weights = token_weights(mask, aggregation=aggregation, max_new_tokens=4, group_size=2)
    chosen, rejected = (logprob * mask).sum(-1)[:, None]
    dpo = dpo_loss(preference_margin(chosen, rejected, chosen.detach(), rejected.detach(), beta=0.1))
    directions = []
    for loss in ((weights * terms.loss_R_T).sum(), dpo.sum()):
        policy.zero_grad()
        loss.backward(retain_graph=True)
        directions.append(torch.cat([parameter.grad.flatten() for parameter in policy.parameters()]))
        assert directions[-1].norm() > 1e-3
    ours, theirs = directions
    cosine = float(torch.cosine_similarity(ours, theirs, dim=0))
    assert cosine == pytest.approx(1, abs=1e-6) if same else cosine < 0.99
