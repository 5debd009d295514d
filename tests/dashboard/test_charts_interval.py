"""Is it luck: means, differences over seeds and their intervals, against tables, sums made by hand and how often a verdict may be wrong."""

from typing import Any

import numpy as np
import pytest
from false_verdicts import ITEMS, Kind, kinds, told_apart

from dashboard.charts.interval import Difference, Estimate, difference, estimate, t_quantile, verdict

about: Any = pytest.approx  # also within a record


def test_the_t_quantile_is_the_tables() -> None:
    """The printed one of the two-sided 95 % point; with many seeds it is the normal distribution's."""
    table = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 10: 2.228, 29: 2.045, 120: 1.980, 9_999: 1.960}
    assert {degrees: t_quantile(degrees) for degrees in table} == about(table, abs=5e-4)


def around(mean: float, half: float) -> tuple[float, float]:
    """The ends of an interval."""
    return about(mean - half, abs=1e-5), about(mean + half, abs=1e-5)


def test_an_estimate_is_mean_and_t_interval() -> None:
    # deviations −0.03, −0.01, 0.04: squares sum to 0.0026, std = √0.0013 = 0.0360555
    ends = around(0.43, 4.302653 * 0.0360555 / 3**0.5)
    assert estimate([0.40, 0.42, 0.47]) == Estimate(about(0.43), about(0.0360555, abs=1e-7), *ends, 3)


def test_one_value_and_equal_ones_have_no_interval_and_none_no_mean() -> None:
    assert estimate([0.5]) == Estimate(0.5, None, None, None, 1)
    assert estimate([]) is None
    assert estimate([0.25, 0.25, 0.25]) == Estimate(0.25, 0.0, None, None, 3)
    up_to_rounding = estimate([0.3 - 0.2, 0.7 - 0.6])
    assert up_to_rounding == Estimate(about(0.1), 0.0, None, None, 2)


def test_a_difference_is_paired_by_seed_so_that_what_seeds_share_drops_out() -> None:
    # the differences are 0.01, 0.01 and 0.02: their std is 0.00577350
    ends = around(0.04 / 3, 4.302653 * 0.00577350 / 3**0.5)
    found = difference({0: 0.50, 1: 0.70, 2: 0.91, 9: 0.0}, {0: 0.49, 1: 0.69, 2: 0.89, 5: 1.0})
    assert found == Difference(about(0.04 / 3), *ends, (3, 3), 3, paired=True)


def test_with_two_common_seeds_of_four_the_runs_of_each_stand_by_themselves() -> None:
    found = difference({0: 0.5, 1: 0.7, 2: 0.9, 3: 0.7}, {2: 0.4, 3: 0.5, 4: 0.6, 5: 0.5})
    assert found is not None
    assert (found.paired, found.seeds, found.shared, found.mean) == (False, (4, 4), 2, about(0.2))
    assert "not distinguishable with 4 against 4 seeds, unpaired, as they share two seeds" in verdict(found)


def test_a_single_seed_has_no_interval_and_nothing_no_difference() -> None:
    assert difference({0: 0.5}, {0: 0.4}) == Difference(about(0.1), None, None, (1, 1), 1, paired=True)
    assert difference({0: 0.5}, {1: 0.4}) == Difference(about(0.1), None, None, (1, 1), 0, paired=False)
    assert difference({}, {1: 0.4}) is None


def test_an_unpaired_interval_is_welchs() -> None:
    # variances 1 / 3 and 32/3 / 4; degrees (1/3 + 8/3)² / ((1/3)² / 2 + (8/3)² / 3) = 3.71, rounded down; t(3) = 3.182446
    ends = around(-2.0, 3.182446 * 3**0.5)
    found = difference({0: 1.0, 1: 2.0, 2: 3.0}, {5: 0.0, 6: 4.0, 7: 8.0, 8: 4.0})
    assert found == Difference(about(-2.0), *ends, (3, 4), 0, paired=False)


@pytest.mark.parametrize("seeds", range(3, 7))
def test_equal_differences_are_no_certainty(seeds: int) -> None:
    for shift in (0.25, 0.1, 0.2, 1e-6):  # also where they are equal up to rounding only: 0.3 − 0.2 is not 0.7 − 0.6
        ours = {seed: 0.1 * seed + shift for seed in range(seeds)}
        found = difference(ours, {seed: 0.1 * seed for seed in range(seeds)})
        assert found is not None
        assert (found.low, found.high) == (None, None)
        assert "higher" not in verdict(found)
        assert "no verdict" in verdict(found)


@pytest.mark.parametrize("other", [0, 1, 2], ids=["the same seeds", "one common seed", "no common seed"])
def test_two_seeds_never_tell_two_settings_apart(other: int) -> None:
    for ours, theirs in [((0.75, 0.5), (0.5, 0.25)), ((1.0, 1.0), (0.0, 0.0)), ((0.9, 0.91), (0.1, 0.1))]:
        words = verdict(difference(dict(enumerate(ours)), dict(enumerate(theirs, other))))
        assert "cannot tell; run three or more" in words
        assert "higher" not in words


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("items", ITEMS)
def test_two_settings_that_do_not_differ_are_told_apart_in_one_case_of_twenty_at_most(seeds: int, items: int) -> None:
    """The short form of `python tests/dashboard/false_verdicts.py`, which counts each kind by itself."""
    random, cases = np.random.default_rng(items), 150
    some = list(kinds((seeds,), (items,)))
    assert sum(told_apart(kind, cases, random) for kind in some) / (cases * len(some)) <= 0.06


@pytest.mark.parametrize("paired", [True, False])
def test_five_seeds_find_a_difference_of_a_fifth(paired: bool) -> None:
    found = told_apart(Kind(5, 200, 0.4, 0.05, paired), 400, np.random.default_rng(1), effect=0.2)
    assert found / 400 > 0.9


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Difference(0.04, -0.01, 0.09, (3, 3), 3, True), "+0.040, 95 % −0.010 to +0.090: not distinguishable with 3 seeds"),
        (Difference(0.04, 0.01, 0.07, (5, 5), 5, True), "+0.040, 95 % +0.010 to +0.070: higher with 5 seeds"),
        (Difference(-0.04, -0.07, -0.01, (5, 5), 5, True), "−0.040, 95 % −0.070 to −0.010: lower with 5 seeds"),
        (
            Difference(0.04, 0.01, 0.07, (3, 4), 0, False),
            "+0.040, 95 % +0.010 to +0.070: higher with 3 against 4 seeds, unpaired, as they share no seed",
        ),
        (Difference(1234.0, -10.0, 2478.0, (3, 3), 3, True), "+1,234, 95 % −10 to +2,478: not distinguishable with 3 seeds"),
        (Difference(2e-5, 1e-5, 3e-5, (3, 3), 3, True), "+0.0000200, 95 % +0.0000100 to +0.0000300: higher with 3 seeds"),
        (
            Difference(0.25, None, None, (3, 3), 3, True),
            "+0.250: the same in each, so there is no interval and no verdict with 3 seeds; more seeds or more held-out prompts "
            "would tell",
        ),
        (Difference(0.25, None, None, (2, 2), 2, True), "+0.250: two seeds cannot tell; run three or more"),
        (Difference(0.04, None, None, (1, 1), 1, True), "+0.040: one seed cannot tell; run three or more"),
        (Difference(0.04, None, None, (1, 3), 0, False), "+0.040: 1 against 3 seeds cannot tell; run three or more of each"),
        (None, "no finished runs to compare"),
    ],
)  # fmt: skip
def test_a_difference_in_words(found: Difference | None, words: str) -> None:
    assert verdict(found) == words
