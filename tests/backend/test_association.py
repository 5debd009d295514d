"""The statistics of properties and rewards within groups: how often they find what is not there, and what they make of small samples.

Each simulation has its own seed; a rate may lie above what it should be by three standard errors of the number of repetitions.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from chance import PLANTED, Window, called_clear, first

from backend.properties.association import (
    LEAST,
    LEVEL,
    Association,
    Floats,
    Ints,
    associate,
    centred,
    correlations,
    differing,
)

REPEATS = 300
MOST = LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / REPEATS)
Random = np.random.Generator
Draw = Callable[[Random, int, int], Floats]
GROUPS_N = np.repeat(np.arange(40), 8)


def measured(
    rewards_N: Floats, properties_N_K: Floats, groups_N: Ints, random: Random, texts_N: Ints | None = None, **how: int
) -> Association:
    """The association in groups whose rewards differ, each group a cluster."""
    kept_N = differing(rewards_N, groups_N)
    numbers_N = np.unique(groups_N[kept_N], return_inverse=True)[1].astype(np.int64)
    texts_N = None if texts_N is None else texts_N[kept_N]
    return associate(centred(rewards_N[kept_N], properties_N_K[kept_N], numbers_N, numbers_N, texts_N), random, **how)


def properties_of(random: Random, count: int) -> Floats:
    """Twelve: continuous, skewed, counts, rare and common ones, and two that are nearly the same."""
    x = random.normal(size=(count, 12))
    x[:, 3:6] = np.exp(2 * x[:, 3:6])
    x[:, 6:8] = random.poisson(1.5, size=(count, 2))
    x[:, 8:10] = x[:, 8:10] > 0.3
    x[:, 10] = x[:, 10] > 1.3
    x[:, 11] = x[:, 0] + 0.05 * x[:, 11]
    return x


def binary(random: Random, groups: int, size: int) -> Floats:
    """Right or wrong, at another rate in each group."""
    return (random.random((groups, size)) < random.random((groups, 1))).astype(np.float64)


def heavy(random: Random, groups: int, size: int) -> Floats:
    """Another mean and another spread in each group, and outliers."""
    return random.standard_t(3, size=(groups, size)) * random.lognormal(size=(groups, 1)) + random.normal(
        size=(groups, 1)
    )


def copied(random: Random, rows_P_G: Ints) -> Ints:
    """Each completion is a copy of one of the first three of its group."""
    size = rows_P_G.shape[1]
    return np.take_along_axis(rows_P_G, random.integers(0, 3, size=(len(rows_P_G), size)), axis=1)


@pytest.mark.parametrize(
    ("groups", "size", "draw", "copies"),
    [
        (60, 4, binary, False),
        (24, 16, heavy, False),
        (16, 64, binary, False),
        (80, 8, binary, True),
        (80, 8, heavy, True),
    ],
)
def test_of_twelve_properties_that_have_nothing_to_do_with_it_one_is_found_in_at_most_5_percent(
    groups: int, size: int, draw: Draw, copies: bool
) -> None:
    random = np.random.default_rng(groups)
    found = tested = 0
    for _ in range(REPEATS):
        rows_P_G = np.arange(groups * size).reshape(groups, size)
        if copies:
            rows_P_G = copied(random, rows_P_G)
        rows_N = rows_P_G.ravel()
        rewards_N = draw(random, groups, size).ravel()[rows_N]
        properties_N_K = properties_of(random, groups * size)[rows_N]
        one = measured(rewards_N, properties_N_K, np.repeat(np.arange(groups), size), random, rows_N, draws=399)
        found += bool(one.clear_K.any())
        tested += int(one.tested_K.sum())
    assert tested > 5 * REPEATS, "the simulation looked at most of them"
    assert found / REPEATS <= MOST


def test_completions_that_are_copies_would_be_found_if_each_counted() -> None:
    """What the clusters are for: the same simulation finds much more with completions as clusters."""
    random = np.random.default_rng(5)
    found = 0
    for _ in range(100):
        rows_N = copied(random, np.arange(640).reshape(80, 8)).ravel()
        rewards_N, x = binary(random, 80, 8).ravel()[rows_N], properties_of(random, 640)[rows_N]
        groups_N = np.repeat(np.arange(80), 8)
        one = associate(centred(rewards_N, x, groups_N, np.arange(640)), random, draws=399)
        found += bool(one.clear_K.any())
    assert found / 100 > 0.3


@pytest.mark.parametrize("draw", [binary, heavy])
def test_all_intervals_together_hold_the_true_effects_in_95_percent(draw: Draw) -> None:
    random = np.random.default_rng(9)
    slopes_K = np.where(np.arange(12) == 1, 0.7, 0.0)
    missed = 0
    for _ in range(REPEATS):
        x = properties_of(random, 50 * 8)
        rewards_N = draw(random, 50, 8).ravel() + x @ slopes_K
        one = measured(rewards_N, x, np.repeat(np.arange(50), 8), random, draws=399)
        outside_K = (one.low_K > slopes_K) | (one.high_K < slopes_K)
        missed += bool(outside_K[one.tested_K].any())
    assert missed / REPEATS <= MOST


def test_an_interval_leaves_out_0_where_the_property_is_clear() -> None:
    random = np.random.default_rng(2)
    disagreeing = 0
    for slope in np.linspace(0, 0.4, 80):
        x = properties_of(random, 240)
        one = measured(heavy(random, 30, 8).ravel() + slope * x[:, 0], x, np.repeat(np.arange(30), 8), random)
        without_0_K = (one.low_K > 0) | (one.high_K < 0)
        disagreeing += int((without_0_K != one.clear_K)[one.tested_K].sum())
    assert disagreeing == 0


def test_a_slope_is_that_within_groups() -> None:
    """Between groups the two go against each other."""
    random = np.random.default_rng(3)
    level_N = random.normal(size=40)[GROUPS_N] * 10
    x_N = level_N + random.normal(size=320)
    one = measured(2.0 * x_N - 5.0 * level_N, x_N[:, None], GROUPS_N, random)
    assert one.effect_K[0] == pytest.approx(2.0)
    assert one.correlation_K[0] == pytest.approx(1.0)
    assert one.low_K[0] == pytest.approx(2.0)


def test_rewards_near_the_largest_float_are_as_good_as_any() -> None:
    random = np.random.default_rng(3)
    x_N = random.normal(size=320)
    rewards_N = x_N + random.normal(size=320)
    one, huge = (measured(rewards_N * unit, x_N[:, None], GROUPS_N, np.random.default_rng(0)) for unit in (1.0, 1e307))
    np.testing.assert_allclose(huge.effect_K, one.effect_K * 1e307)
    np.testing.assert_allclose(huge.low_K, one.low_K * 1e307)


def test_too_few_groups_say_nothing() -> None:
    random = np.random.default_rng(4)
    groups_N = np.repeat(np.arange(LEAST - 1), 64)
    x_N = random.normal(size=len(groups_N))
    one = measured(x_N, x_N[:, None], groups_N, random)
    assert not one.tested_K[0]
    assert not one.clear_K[0]
    assert math.isnan(one.effect_K[0])


def test_missing_values_leave_out_their_completion_alone() -> None:
    random = np.random.default_rng(6)
    x = random.normal(size=(320, 2))
    rewards_N = x[:, 0] + x[:, 1]
    rewards_N[random.random(320) < 0.1] = np.nan
    x[random.random(320) < 0.3, 1] = np.nan
    whole = measured(rewards_N, x, GROUPS_N, random)
    kept_N = np.isfinite(rewards_N)
    apart = measured(rewards_N[kept_N], x[kept_N], GROUPS_N[kept_N], random)
    np.testing.assert_allclose(whole.effect_K, apart.effect_K)
    known_N = kept_N & np.isfinite(x[:, 1])
    alone = measured(rewards_N[known_N], x[known_N, 1:], GROUPS_N[known_N], random)
    assert whole.effect_K[1] == pytest.approx(alone.effect_K[0])


def test_properties_that_are_one_in_other_words_have_a_correlation_of_1_and_nothing_beside_it() -> None:
    random = np.random.default_rng(8)
    x_N, other_N = random.normal(size=(2, 320))
    data = centred(x_N + other_N, np.stack([x_N, 3 - 2 * x_N, other_N], axis=1), GROUPS_N, GROUPS_N)
    np.testing.assert_allclose(correlations(data)[0], [1.0, -1.0, correlations(data)[0, 2]])
    beside = associate(data.beside(0), random)
    assert list(beside.tested_K) == [False, False, True]
    assert beside.correlation_K[2] == pytest.approx(1.0)


def test_a_reward_that_is_the_property_goes_with_all_of_it_and_no_more() -> None:
    for seed in range(20):
        values_N_K = np.random.default_rng(seed).normal(size=(320, 1))
        found = associate(centred(values_N_K[:, 0] / 3, values_N_K, GROUPS_N, GROUPS_N), np.random.default_rng(0))
        assert 1 - 1e-12 < found.correlation_K[0] <= 1.0


@pytest.mark.parametrize("window", [Window(120, 0.92, (0.06, 0.06)), Window(60, 0.08), Window(60, 0.92)], ids=str)
def test_where_rewards_and_words_are_rare_a_word_that_nothing_is_paid_for_is_seldom_clear(window: Window) -> None:
    """The short form of `make bench-chance`; signs drawn for clusters call one clear in half of the first windows."""
    assert called_clear(window, 100, np.random.default_rng(1), draws=399) <= LEVEL + 3 * math.sqrt(LEVEL / 100)


@pytest.mark.parametrize("window", PLANTED, ids=str)
def test_a_planted_word_is_clear_and_comes_first(window: Window) -> None:
    assert first(window, np.random.default_rng(2))


def test_equal_texts_of_a_group_count_as_one() -> None:
    """Two texts of four copies each, and in 9 of 12 groups the same one is right: 12 coins show as much in 598 of 4,096 throws."""
    texts_N, groups_N = np.tile([1, 0, 0, 1, 1, 0, 1, 0], 12), np.repeat(np.arange(12), 8)
    rewards_N = np.where(groups_N < 9, texts_N, 1 - texts_N).astype(float)
    as_one, each = (
        associate(centred(rewards_N, texts_N[:, None] * 1.0, groups_N, groups_N, texts), np.random.default_rng(0))
        for texts in (texts_N, None)
    )
    assert as_one.p_K[0] == pytest.approx(598 / 4096, abs=0.025)
    assert each.p_K[0] < 0.11
