"""The loss of a batch: each axis of the algorithm adds exactly its own term, and the terms of tokens become one number."""

from statistics import mean
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.contract.advantage import BestWorst, Gae
from backend.contract.algorithm import Aggregation, Algorithm, Kl
from backend.contract.surrogate import Cispo, Clip, Dpo, PolicyGradient, Sapo, Surrogate, Vespo
from worker.algorithms import objective
from worker.algorithms.objective import TokenTerms, importance_ratio, kl_per_token, token_terms, token_weights

Floats = NDArray[np.float64]
GENERATOR = np.random.default_rng(0)
OLD, REFERENCE, FULL = (-1 - GENERATOR.random((2, 3)) for _ in range(3))
LOGPROB = OLD + 0.5 * GENERATOR.normal(size=(2, 3))
ADVANTAGES = np.array([[1.5], [-0.5]])
MASK = np.array([[1.0, 1, 1], [1, 1, 0]])
ENTROPY, VALUES, RETURNS = GENERATOR.random((3, 2, 3))
NO_KL = Kl(beta=0)


def terms(algorithm: Algorithm, **other: Floats) -> TokenTerms:
    usual = {"logprob_R_T": LOGPROB, "old_logprob_R_T": OLD, "advantages_R_T": ADVANTAGES, "mask_R_T": MASK}
    return token_terms(algorithm, **usual | other)


PLAIN = terms(Algorithm(kl=NO_KL)).loss_R_T
RATIO = importance_ratio(LOGPROB, OLD, MASK, level="token")


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (Clip(delta=3), objective.clip(RATIO, ADVANTAGES, epsilon_low=0.2, epsilon_high=0.2, delta=3)),
        (PolicyGradient(), objective.policy_gradient(LOGPROB, ADVANTAGES)),
        (Cispo(cap=1.1), objective.cispo(RATIO, LOGPROB, ADVANTAGES, cap=1.1)),
        (Sapo(), objective.sapo(RATIO, ADVANTAGES, tau_positive=1, tau_negative=1.05)),
    ],
    ids=lambda value: value.kind if not isinstance(value, np.ndarray) else "",
)
def test_each_surrogate_is_its_own_function(chosen: Surrogate, expected: Floats) -> None:
    np.testing.assert_array_equal(terms(Algorithm(kl=NO_KL, surrogate=chosen)).loss_R_T, expected)


def test_vespo_weighs_by_the_whole_completion() -> None:
    measured = terms(Algorithm(kl=NO_KL, surrogate=Vespo(), ratio="sequence_product"))
    np.testing.assert_array_equal(measured.ratio_R_T[0], np.full(3, measured.ratio_R_T[0, 0]))
    settings = Vespo().model_dump(exclude={"kind"})
    np.testing.assert_array_equal(measured.loss_R_T, objective.vespo(LOGPROB, OLD, MASK, ADVANTAGES, **settings))


def test_the_penalty_is_of_the_full_distribution_where_that_is_given() -> None:
    algorithm = Algorithm(kl=Kl(beta=0.5, estimator="k2"))
    for compared, extra in ((LOGPROB, {}), (FULL, {"full_logprob_R_T": FULL})):
        measured = terms(algorithm, reference_logprob_R_T=REFERENCE, **extra)
        expected = kl_per_token(compared, REFERENCE, estimator="k2")
        np.testing.assert_array_equal(measured.kl_R_T, expected)
        np.testing.assert_allclose(measured.loss_R_T, PLAIN + 0.5 * expected)


@pytest.mark.parametrize("kl", [NO_KL, Kl(beta=0.5, placement="reward")])
def test_a_penalty_that_is_off_or_in_the_reward_is_not_in_the_loss(kl: Kl) -> None:
    measured = terms(Algorithm(kl=kl), reference_logprob_R_T=REFERENCE)
    assert measured.kl_R_T is None
    np.testing.assert_array_equal(measured.loss_R_T, PLAIN)


def test_the_entropy_bonus_lowers_the_loss_and_the_value_loss_joins_only_under_gae() -> None:
    measured = terms(Algorithm(kl=NO_KL, entropy_bonus=0.1), entropy_R_T=ENTROPY)
    np.testing.assert_allclose(measured.loss_R_T, PLAIN - 0.1 * ENTROPY)
    values = {"values_R_T": VALUES, "returns_R_T": RETURNS}
    measured = terms(Algorithm(kl=NO_KL, advantage=Gae(value_coefficient=0.3)), **values)
    np.testing.assert_allclose(measured.loss_R_T, PLAIN + 0.3 * (VALUES - RETURNS) ** 2)
    np.testing.assert_array_equal(terms(Algorithm(kl=NO_KL), **values).loss_R_T, PLAIN)


def test_dpo_leaves_the_tokens_to_the_pairs() -> None:
    algorithm = Algorithm(kl=NO_KL, advantage=BestWorst(), surrogate=Dpo(), aggregation="group_sum")
    assert not terms(algorithm).loss_R_T.any()
    assert terms(algorithm).loss_R_T.shape == (2, 3)


def test_each_token_may_have_an_advantage_of_its_own() -> None:
    repeated = terms(Algorithm(kl=NO_KL), advantages_R_T=np.repeat(ADVANTAGES, 3, axis=1))
    np.testing.assert_array_equal(repeated.loss_R_T, PLAIN)


@pytest.mark.parametrize(
    ("chosen", "ratio", "advantage", "cut"),
    [
        (Clip(epsilon_high=0.28), 1.3, 1, "high"),
        (Clip(epsilon_high=0.28), 1.25, 1, None),
        (Clip(epsilon_high=0.28), 0.7, -1, "low"),
        (Cispo(cap=2), 2.1, 1, "high"),
        (Cispo(cap=2), 1.9, 1, None),
        (Cispo(cap=2), 2.1, -1, None),
        (Sapo(), 9.0, 1, None),
        (PolicyGradient(), 9.0, 1, None),
    ],
)
def test_where_the_surrogates_weight_is_cut(chosen: Surrogate, ratio: float, advantage: float, cut: str | None) -> None:
    now, before, mask = np.log([[ratio]]) - 1, np.array([[-1.0]]), np.ones((1, 1))
    of_one = {"logprob_R_T": now, "old_logprob_R_T": before, "advantages_R_T": mask * advantage, "mask_R_T": mask}
    measured = terms(Algorithm(kl=NO_KL, surrogate=chosen), **of_one)
    assert bool(measured.low_R_T[0, 0]) == (cut == "low")
    assert bool(measured.high_R_T[0, 0]) == (cut == "high")


# ---- how token losses become one number


AGGREGATIONS = get_args(Aggregation)
MAX_NEW_TOKENS, GROUP_SIZE = 8, 2
# Three prompts of two completions: one completion and one whole prompt have nothing to train on.
LENGTHS = [4, 2, 0, 0, 0, 3]
TRAINED = (np.arange(5) < np.array(LENGTHS)[:, None]).astype(float)
LOSS = np.random.default_rng(0).normal(size=TRAINED.shape)


def plain(aggregation: Aggregation) -> float:
    """The aggregated loss, from the losses of each completion as lists."""
    rows = [LOSS[r, :length].tolist() for r, length in enumerate(LENGTHS)]
    trained = [row for row in rows if row]
    prompts = [[row for row in rows[p : p + GROUP_SIZE] if row] for p in range(0, len(rows), GROUP_SIZE)]
    prompts = [prompt for prompt in prompts if prompt]
    return {
        "sequence_mean": lambda: mean(mean(row) for row in trained),
        "token_mean": lambda: mean(loss for row in trained for loss in row),
        "constant": lambda: sum(sum(row) for row in trained) / (len(trained) * MAX_NEW_TOKENS),
        "sequence_sum": lambda: mean(sum(row) for row in trained),
        "group_sum": lambda: mean(sum(sum(row) for row in prompt) for prompt in prompts),
        "group_token_mean": lambda: mean(sum(mean(row) for row in prompt) for prompt in prompts),
    }[aggregation]()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_each_aggregation_is_its_own_formula_and_what_is_empty_counts_in_no_mean(aggregation: Aggregation) -> None:
    weights = token_weights(TRAINED, aggregation=aggregation, max_new_tokens=MAX_NEW_TOKENS, group_size=GROUP_SIZE)
    assert (weights * LOSS).sum() == pytest.approx(plain(aggregation))
    assert not any(plain(other) == pytest.approx(plain(aggregation)) for other in AGGREGATIONS if other != aggregation)
    nothing = np.zeros((2, 3))
    assert not token_weights(nothing, aggregation=aggregation, max_new_tokens=3, group_size=2).any()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("seed", range(5))
def test_no_split_of_the_rows_changes_the_loss(aggregation: Aggregation, seed: int) -> None:
    """Also one that tears the completions of a prompt apart, in any order and with padding cut off."""
    weights = token_weights(TRAINED, aggregation=aggregation, max_new_tokens=MAX_NEW_TOKENS, group_size=GROUP_SIZE)
    generator = np.random.default_rng(seed)
    cuts = np.sort(generator.choice(np.arange(1, 6), size=generator.integers(1, 6), replace=False))
    parts = np.split(generator.permutation(6), cuts)
    widths = [max(LENGTHS[row] for row in rows) for rows in parts]
    total = sum((weights[rows, :w] * LOSS[rows, :w]).sum() for rows, w in zip(parts, widths, strict=True))
    assert total == pytest.approx(plain(aggregation), rel=1e-9)
