"""Is it luck: differences over seeds, against sums made by hand and against how often an interval must be right."""

import numpy as np
import pytest

from dashboard.charts.bootstrap import Difference, difference, interval, verdict


def test_a_difference_is_paired_by_seed_so_that_what_seeds_share_drops_out() -> None:
    found = difference({0: 0.50, 1: 0.70, 2: 0.90, 9: 0.0}, {0: 0.49, 1: 0.69, 2: 0.89, 5: 1.0})
    assert found is not None
    assert (found.paired, found.shared, found.mean) == (True, 3, pytest.approx(0.01))
    assert (found.low, found.high) == (pytest.approx(0.01), pytest.approx(0.01))


def test_without_common_seeds_the_runs_of_each_are_resampled_by_themselves() -> None:
    found = difference({0: 0.5, 1: 0.7, 2: 0.9}, {5: 0.4, 6: 0.6})
    assert found is not None
    assert (found.paired, found.runs, found.shared) == (False, (3, 2), 0)
    assert found.mean == pytest.approx(0.2)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0 < found.mean < found.high


def test_a_single_seed_has_no_interval_and_nothing_no_difference() -> None:
    assert difference({0: 0.5}, {0: 0.4}) == Difference(pytest.approx(0.1), None, None, (1, 1), 1, paired=True)
    assert difference({0: 0.5}, {1: 0.4}) == Difference(pytest.approx(0.1), None, None, (1, 1), 0, paired=False)
    assert difference({}, {1: 0.4}) is None


def test_the_same_runs_give_the_same_interval() -> None:
    assert interval([[0.1, 0.4, 0.2]]) == interval([[0.1, 0.4, 0.2]])


def test_of_two_differences_the_interval_is_the_t_intervals() -> None:
    # resamples of two are the lower, the middle and the upper: the quantiles are the values, widened by √2 · 12.706 / 1.96
    low, high = interval([[0.0, 0.2]])
    half = 0.1 * 2**0.5 * 12.7062 / 1.959964
    assert (low, high) == (pytest.approx(0.1 - half, abs=1e-4), pytest.approx(0.1 + half, abs=1e-4))


@pytest.mark.parametrize("seeds", [3, 5])
def test_of_few_seeds_without_a_difference_about_one_in_twenty_intervals_excludes_zero(seeds: int) -> None:
    random = np.random.default_rng(7)
    found = [interval([random.normal(size=seeds).tolist()]) for _ in range(400)]
    wrong = sum(low is not None and high is not None and not low <= 0 <= high for low, high in found)
    assert 0.02 <= wrong / len(found) <= 0.10, "the percentile interval alone would be wrong in 25 of 100"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            Difference(0.04, -0.01, 0.09, (3, 3), 3, True),
            "+0.040, 95 % −0.010 to +0.090: not distinguishable with 3 seeds",
        ),
        (Difference(0.04, 0.01, 0.07, (5, 5), 5, True), "+0.040, 95 % +0.010 to +0.070: higher with 5 seeds"),
        (Difference(-0.04, -0.07, -0.01, (5, 5), 5, True), "−0.040, 95 % −0.070 to −0.010: lower with 5 seeds"),
        (Difference(0.0, 0.0, 0.0, (2, 2), 2, True), "0.000, 95 % 0.000 to 0.000: not distinguishable with 2 seeds"),
        (
            Difference(0.04, 0.01, 0.07, (3, 4), 0, False),
            "+0.040, 95 % +0.010 to +0.070: higher with 3 against 4 runs, unpaired, as they share no seed",
        ),
        (
            Difference(1234.0, -10.0, 2478.0, (2, 2), 2, True),
            "+1,234, 95 % −10 to +2,478: not distinguishable with 2 seeds",
        ),
        (
            Difference(2e-5, 1e-5, 3e-5, (2, 2), 2, True),
            "+0.0000200, 95 % +0.0000100 to +0.0000300: higher with 2 seeds",
        ),
        (Difference(0.04, None, None, (1, 1), 1, True), "+0.040 with one seed: no interval"),
        (Difference(0.04, None, None, (1, 3), 0, False), "+0.040 with 1 against 3 runs, unpaired: no interval"),
        (None, "no finished runs to compare"),
    ],
)
def test_a_difference_in_words(found: Difference | None, words: str) -> None:
    assert verdict(found) == words
