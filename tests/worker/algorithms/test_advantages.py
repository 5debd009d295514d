"""Each estimator against a plain computation, and what none of them may do."""

import math
import statistics
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.contract.advantage import (
    Advantage,
    BatchBaseline,
    BatchStd,
    BestWorst,
    Gae,
    GroupCenter,
    GroupZscore,
    LeaveOneOut,
    NoBaseline,
    NormalizeThenSum,
    Softmax,
)
from worker.algorithms.advantages import live_by_component, normalize_then_sum, softmax
from worker.algorithms.estimator import estimate

ESTIMATORS: list[Advantage] = [
    GroupZscore(std="population", eps=1e-8),
    GroupZscore(std="sample", eps=1e-4),
    GroupZscore(std_floor=0.9),
    GroupCenter(),
    BatchStd(),
    Softmax(),
    LeaveOneOut(),
    BatchBaseline(),
    NoBaseline(),
    NormalizeThenSum(),
    BestWorst(),
]
ZERO_WHERE_EQUAL = [chosen for chosen in ESTIMATORS if chosen.centred]
NAN = math.nan
BATCH = np.array([[0.2, 0.9, NAN, 0.4], [1.0, 0.0, 1.0, 1.0], [0.3, 0.3, 0.3, NAN], [NAN, 2.0, NAN, NAN], [NAN] * 4])


@pytest.fixture(autouse=True)
def _numpy_is_strict() -> Iterator[None]:
    """No estimator divides by 0 or makes a NaN on the way, even where it is thrown away afterwards."""
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        yield


def kind(chosen: Advantage) -> str:
    if not isinstance(chosen, GroupZscore):
        return chosen.kind
    return f"{chosen.kind}-{chosen.std}{'-floor' if chosen.std_floor else ''}"


def advantages(chosen: Advantage, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    return estimate(chosen, rewards).advantages_P_G


Scored = list[float]
PLAIN: dict[str, Callable[[Scored, Scored], Scored]] = {
    # Of a group's scored rewards and the batch's, in words that share nothing with the code.
    "group_zscore-population": lambda g, b: [(r - statistics.mean(g)) / (statistics.pstdev(g) + 1e-8) for r in g],
    "group_zscore-population-floor": lambda g, b: [
        (r - statistics.mean(g)) / (max(statistics.pstdev(g), 0.9) + 1e-8) for r in g
    ],
    "group_zscore-sample": lambda g, b: [(r - statistics.mean(g)) / (statistics.stdev(g) + 1e-4) for r in g],
    "group_center": lambda g, b: [r - statistics.mean(g) for r in g],
    "batch_std": lambda g, b: [(r - statistics.mean(g)) / (statistics.stdev(b) + 1e-4) for r in g],
    "softmax": lambda g, b: [math.exp(r) / math.fsum(map(math.exp, g)) for r in g],
    "leave_one_out": lambda g, b: [r - statistics.mean(g[:i] + g[i + 1 :]) for i, r in enumerate(g)],
    "batch_baseline": lambda g, b: [r - statistics.mean(b) for r in g],
    "none": lambda g, b: g,
    "best_worst": lambda g, b: [float(i == g.index(max(g))) - float(i == g.index(min(g))) for i in range(len(g))],
}


@pytest.mark.parametrize("chosen", [one for one in ESTIMATORS if one.kind != "normalize_then_sum"], ids=kind)
@pytest.mark.parametrize("seed", range(5))
def test_each_estimator_is_its_formula(chosen: Advantage, seed: int) -> None:
    generator = np.random.default_rng(seed)
    rewards = generator.normal(size=(6, 6)).round(1)  # rounded, so that there are ties, also of the best and the worst
    rewards[generator.random(rewards.shape) < 0.2] = NAN
    batch = rewards[~np.isnan(rewards)].tolist()
    for row, measured in zip(rewards, advantages(chosen, rewards), strict=True):
        scored = ~np.isnan(row)
        assert scored.sum() >= 2
        np.testing.assert_allclose(measured[scored], PLAIN[kind(chosen)](row[scored].tolist(), batch), atol=1e-12)
        assert not measured[~scored].any()


def test_normalize_then_sum_is_its_formula() -> None:
    components = np.random.default_rng(0).normal(size=(3, 5, 2))
    weights = np.array([1.0, -0.3])
    summed = np.zeros((3, 5))
    for p in range(3):
        for k in range(2):
            group = components[p, :, k].tolist()
            for g in range(5):
                summed[p, g] += weights[k] * (group[g] - statistics.mean(group)) / (statistics.stdev(group) + 1e-4)
    batch = summed.flatten().tolist()
    expected = (summed - statistics.mean(batch)) / (statistics.stdev(batch) + 1e-4)
    np.testing.assert_allclose(normalize_then_sum(components, weights, eps=1e-4), expected, atol=1e-12)


@pytest.mark.parametrize("chosen", ESTIMATORS, ids=kind)
def test_advantages_are_finite_those_of_live_groups_and_add_up_to_zero_in_every_group_if_they_are_centred(
    chosen: Advantage,
) -> None:
    measured = estimate(chosen, BATCH)
    assert np.isfinite(measured.advantages_P_G).all()
    assert np.allclose(measured.advantages_P_G.sum(axis=-1), 0, atol=1e-12) == chosen.centred
    assert measured.statistics.live_P.tolist() == [True, True, False, False, False]
    assert measured.statistics.scored_P.tolist() == [3, 4, 3, 1, 0]
    if chosen.centred:  # fewer than two scored completions are no group
        assert not measured.advantages_P_G[3:].any()


@pytest.mark.parametrize("value", [0.1, 0.3, 1 / 3, 1e12])
@pytest.mark.parametrize("chosen", ZERO_WHERE_EQUAL, ids=kind)
def test_equal_rewards_give_exactly_zero(chosen: Advantage, value: float) -> None:
    assert not advantages(chosen, np.full((2, 7), value)).any()
    beside_a_live_group = advantages(chosen, np.array([[value] * 7, [0.0, 1, 0, 1, 1, 0, 0]]))
    assert not beside_a_live_group[0].any()
    assert beside_a_live_group[1].any()


@pytest.mark.parametrize(
    "row",
    [
        [0.3, 0.1 + 0.2, 0.3, 0.3],  # 0.3 × 1, and 0.1 × 1 + 0.2 × 1
        [0.0, 0.1 + 0.2 - 0.3, 0.0, 0.0],  # the sum cancels, its rounding stays
        [1e9 * 0.3, 1e9 * (0.1 + 0.2), NAN, 1e9 * 0.3],
    ],
)
@pytest.mark.parametrize("chosen", ZERO_WHERE_EQUAL, ids=kind)
def test_rewards_that_are_equal_up_to_rounding_are_ties_however_small_eps_is(chosen: Advantage, row: Scored) -> None:
    if isinstance(chosen, GroupZscore | BatchStd | NormalizeThenSum):
        chosen = chosen.model_copy(update={"eps": 1e-300})
    measured = estimate(chosen, np.array([row, [0.0, 1e-9, 0.0, 1e-9]]))
    assert not measured.advantages_P_G[0].any()
    assert measured.advantages_P_G[1].any(), "a small difference is one"
    assert measured.statistics.live_P.tolist() == [False, True]
    if isinstance(chosen, GroupZscore):
        assert measured.statistics.std_P[0] == 0


@pytest.mark.parametrize("value", [0.0, 0.1, 1e12])
def test_softmax_shares_one_equally_where_rewards_are_equal(value: float) -> None:
    np.testing.assert_allclose(softmax(np.array([[600.0, -600, 599], [-1e6, -1e6, -1e6]])).sum(-1), 1)
    np.testing.assert_array_equal(softmax(np.full((1, 8), value)), np.full((1, 8), 1 / 8))
    np.testing.assert_array_equal(softmax(np.array([[value, NAN, value, value]])), [[1 / 3, 0, 1 / 3, 1 / 3]])


@pytest.mark.parametrize("chosen", [BatchBaseline(), NoBaseline()], ids=kind)
def test_a_group_of_equal_rewards_still_trains_where_nothing_is_centred_on_the_group(chosen: Advantage) -> None:
    assert advantages(chosen, np.array([[1.0, 1.0], [0.0, 0.0]]))[0].all()


@pytest.mark.parametrize("chosen", ESTIMATORS, ids=kind)
def test_an_unscored_completion_gets_nothing_and_moves_no_baseline(chosen: Advantage) -> None:
    rewards = np.array([[0.2, 0.9, 0.4], [1.0, 0.0, 1.0]])
    with_gaps = np.insert(rewards, 1, NAN, axis=1)
    measured = advantages(chosen, with_gaps)
    np.testing.assert_allclose(np.delete(measured, 1, axis=1), advantages(chosen, rewards), rtol=1e-12)
    assert not measured[:, 1].any()
    with_an_unscored_group = np.vstack([rewards, np.full((1, 3), NAN)])
    np.testing.assert_allclose(advantages(chosen, with_an_unscored_group)[:2], advantages(chosen, rewards), rtol=1e-12)


def test_each_estimator_says_the_mean_and_std_that_it_used() -> None:
    rewards = np.array([[1.0, 0, 0, 1], [1, 1, 1, 0], [NAN] * 4])
    batch = rewards[:2].flatten().tolist()
    sample = estimate(GroupZscore(std="sample"), rewards).statistics
    np.testing.assert_allclose(sample.std_P, [statistics.stdev([1, 0, 0, 1]), statistics.stdev([1, 1, 1, 0]), NAN])
    of_batch = estimate(BatchStd(), rewards).statistics
    np.testing.assert_allclose(of_batch.mean_P, [0.5, 0.75, NAN])
    np.testing.assert_allclose(of_batch.std_P, [statistics.stdev(batch)] * 2 + [NAN])
    baseline = estimate(BatchBaseline(), rewards).statistics
    np.testing.assert_allclose(baseline.mean_P, [statistics.mean(batch)] * 2 + [NAN])
    for chosen in (GroupZscore(), GroupCenter(), Softmax(), LeaveOneOut(), NoBaseline(), BestWorst()):
        own = estimate(chosen, rewards).statistics
        np.testing.assert_allclose(own.mean_P, [0.5, 0.75, NAN])
        np.testing.assert_allclose(own.std_P, [0.5, statistics.pstdev([1, 1, 1, 0]), NAN])


def test_components_that_differ_make_a_group_live_though_their_totals_are_equal() -> None:
    components = np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]])
    measured = estimate(NormalizeThenSum(), components.sum(-1), components_P_G_K=components, weights_K=np.ones(2))
    assert measured.statistics.live_P.tolist() == [True, False]
    unweighted = estimate(NormalizeThenSum(), components.sum(-1), components_P_G_K=components, weights_K=np.zeros(2))
    assert not unweighted.statistics.live_P.any()
    assert not unweighted.advantages_P_G.any()


def test_a_completion_that_lacks_one_component_or_the_total_moves_no_components_baseline() -> None:
    components = np.random.default_rng(1).random((2, 4, 2))
    weights, without, totals = np.array([1.0, 2.0]), components.copy(), components.sum(-1)
    totals[0, 3] = NAN
    untotalled = estimate(NormalizeThenSum(), totals, components_P_G_K=components.copy(), weights_K=weights)
    components[0, 3, 1] = NAN
    without[0, 3] = NAN  # its other component says nothing either
    measured = normalize_then_sum(components, weights, eps=1e-4)
    assert measured[0, 3] == 0
    np.testing.assert_array_equal(measured, untotalled.advantages_P_G)
    np.testing.assert_array_equal(measured, normalize_then_sum(without, weights, eps=1e-4))
    only_it_differs = np.array([[[1.0, 0.0], [1.0, 0.0], [9.0, NAN]]])
    assert not live_by_component(only_it_differs, weights).any()


def test_gae_is_refused_with_where_to_go() -> None:
    with pytest.raises(ValueError, match=r"worker\.algorithms\.gae"):
        estimate(Gae(), BATCH)


def test_a_floor_keeps_a_near_tie_small_and_leaves_other_groups_alone() -> None:
    near, far = [0.5, 0.501, 0.5, 0.5], [0.0, 1.0, 0.0, 1.0]
    rewards = np.array([near, far])
    plain, floored = (advantages(GroupZscore(std_floor=floor), rewards) for floor in (0.0, 0.1))
    assert plain[0].max() > 1.7  # as large as a clear difference
    assert floored[0].max() == pytest.approx((0.501 - statistics.mean(near)) / 0.1, rel=1e-6)
    np.testing.assert_array_equal(floored[1], plain[1])
