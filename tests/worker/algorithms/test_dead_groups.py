"""The forecast of dead groups is exact: it counts what enumeration counts, and is right on average."""

from fractions import Fraction
from itertools import combinations, product
from math import comb

import pytest

from backend.contract.preflight import dead_share_at_rate
from worker.algorithms.dead_groups import dead_share


@pytest.mark.parametrize("size", [2, 3, 4, 6])
@pytest.mark.parametrize("outcomes", ["rrrrrr", "rrrrww", "rwwwwww", "aabbbcc", "abcdefg"])
def test_it_is_the_share_of_dead_ones_among_all_groups_that_the_sample_holds(outcomes: str, size: int) -> None:
    groups = list(combinations(outcomes, size))
    dead = sum(len(set(group)) == 1 for group in groups)
    counts = [outcomes.count(outcome) for outcome in sorted(set(outcomes))]
    assert dead_share([counts], size) == pytest.approx(dead / len(groups), rel=1e-15)


def test_right_and_wrong_give_the_hypergeometric_formula() -> None:
    # (C(12, 8) + C(4, 8)) / C(16, 8) = 495 / 12870
    assert dead_share([(12, 4)], 8) == pytest.approx(495 / 12870, rel=1e-15)
    # two prompts: (495 / 12870 + 1) / 2
    assert dead_share([(12, 4), (16, 0)], 8) == pytest.approx((495 / 12870 + 1) / 2, rel=1e-15)
    assert dead_share([(15, 1)], 16) == 0.0
    assert dead_share([(0, 16)], 16) == 1.0


@pytest.mark.parametrize("size", [2, 3, 5])
def test_its_average_over_all_samples_is_the_true_share(size: int) -> None:
    n, p = 5, Fraction(1, 3)
    expected = Fraction(0)
    for sample in product((True, False), repeat=n):
        right = sum(sample)
        likelihood = p**right * (1 - p) ** (n - right)
        expected += likelihood * Fraction(comb(right, size) + comb(n - right, size), comb(n, size))
        assert dead_share([(right, n - right)], size) == pytest.approx(
            float(Fraction(comb(right, size) + comb(n - right, size), comb(n, size)))
        )
    assert expected == p**size + (1 - p) ** size
    assert float(expected) == pytest.approx(dead_share_at_rate(1 / 3, size), rel=1e-14)


def test_the_formula_at_the_mean_rate_says_less_than_prompts_that_differ_will_show() -> None:
    easy_and_hard = [(15, 1), (1, 15)]
    assert dead_share_at_rate(0.5, 8) == pytest.approx(2 / 256)
    assert dead_share(easy_and_hard, 8) == pytest.approx(comb(15, 8) / comb(16, 8)) == pytest.approx(0.5)


@pytest.mark.parametrize("counts", [[], [(3, 4)], [(8, 8), (3, 4)]])
def test_nothing_is_forecast_for_groups_larger_than_what_was_sampled(counts: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="groups of 8"):
        dead_share(counts, 8)
