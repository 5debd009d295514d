"""How many seeds it takes: against comparisons that other code simulates and judges, and against cases that can be worked out."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from chance import SPREADS, Spread, held
from power import Case, covered, rows

from dashboard.charts.power import LEAST, MOST, WANTED, Plan, Range, needed_seeds, plan, power, spread_interval
from dashboard.comparison.seeds import more_seeds

CASES = [
    *(Case(seeds, effect, paired=True) for seeds, effect in ((3, 2.0), (5, 2.0), (20, 1.0))),
    *(Case(seeds, effect, paired=False) for seeds, effect in ((3, 3.0), (20, 0.5))),
    Case(5, 2.0, False, (0.3, 1.4)),
    Case(5, 0.1, True, (0.04, 0.04), items=50),
    Case(8, 0.1, False, (0.04, 0.04), items=500),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_power_lies_within_five_points_of_simulated_repetitions(case: Case) -> None:
    """The short form of `python benchmarks/power.py`."""
    (row,) = rows(iter([case]), 1000, np.random.default_rng(7))
    assert row.apart <= 5
    assert 0.05 < row.simulated < 0.99, "a case that cannot be missed"


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_range_of_seeds_holds_the_right_number_in_19_of_20_comparisons(seeds: int, paired: bool) -> None:
    assert covered(seeds, paired, 1000, np.random.default_rng(seeds)) > 0.93


def test_as_many_seeds_as_are_needed_are_enough_and_one_less_is_not_from_the_fewest_with_a_verdict_to_the_most() -> (
    None
):
    for effect, variances in [(1.0, (1.0,)), (0.5, (1.0,)), (1.0, (1.0, 0.2))]:
        seeds = needed_seeds(effect, variances)
        assert seeds is not None
        assert power(effect, variances, (seeds,) * len(variances)) >= WANTED
        assert power(effect, variances, (seeds - 1,) * len(variances)) < WANTED
    assert needed_seeds(100.0, (1.0,)) == LEAST
    assert needed_seeds(0.01, (1.0,)) is None


def test_without_a_difference_one_in_forty_is_called_higher() -> None:
    assert power(0.0, (1.0,), (5,)) == pytest.approx(0.025, abs=0.004)


def test_the_interval_of_a_spread_is_that_of_the_chi_square_distribution() -> None:
    # of four values: 3 / 9.348404 and 3 / 0.215795
    assert spread_interval([2.0], [4]) == (pytest.approx(0.320910, abs=1e-6), pytest.approx(13.902084, abs=1e-4))
    # of ten: 9 / 19.022768 and 9 / 2.700389
    assert spread_interval([2.0], [10]) == (pytest.approx(0.473117, abs=1e-6), pytest.approx(3.332853, abs=1e-5))
    # of two equal spreads of five each, whose own ends are 4 / 11.143287 and 4 / 0.484419
    low, high = 1 - (1 - 4 / 11.143287) / math.sqrt(2), 1 + (4 / 0.484419 - 1) / math.sqrt(2)
    assert spread_interval([1.0, 1.0], [5, 5]) == (pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-4))


@pytest.mark.parametrize("spread", SPREADS, ids=str)
def test_the_interval_of_a_spread_holds_also_where_one_setting_has_many_more_seeds(spread: Spread) -> None:
    """The short form of `make bench-chance`."""
    assert held(spread, 1000, np.random.default_rng(sum(spread.seeds))) > 0.93


OURS = {0: 0.50, 1: 0.70, 2: 0.91}
THEIRS = {0: 0.49, 1: 0.66, 2: 0.89}


def planned(ours: dict[int, float], theirs: dict[int, float], effect: float | None = None) -> Plan:
    found = plan(ours, theirs, effect)
    assert isinstance(found, Plan)
    return found


def ends(found: Range) -> list[float]:
    """What is more than the most is endless."""
    return [math.inf if value is None else value for value in found]


def test_three_seeds_give_a_range_and_no_number_that_looks_exact_and_a_smaller_difference_takes_more() -> None:
    found = planned(OURS, THEIRS)
    assert (found.effect, found.seeds) == (pytest.approx(0.07 / 3), (3, 3))
    least, likely, most = ends(found.needed)
    assert least < likely < most / 10
    assert found == plan(THEIRS, OURS), "a difference downwards takes as many"
    assert ends(planned(OURS, THEIRS, effect=0.01).needed)[1] > 2 * likely
    least, _, most = ends(found.power)
    assert 0.5 < most - least <= 1


def test_two_seeds_have_no_verdict_and_a_plan_all_the_same() -> None:
    found = planned({0: 0.5, 1: 0.7}, {0: 0.4, 1: 0.55})
    assert (found.power, found.needed.most) == ((0, 0, 0), None)
    assert more_seeds(found) == f"1 (1 to more than {MOST - 2})"


@pytest.mark.parametrize(
    ("ours", "theirs", "missing"),
    [
        ({}, {0: 0.5}, "no finished runs"),
        ({0: 0.5}, {0: 0.4}, "one seed does not show how far seeds differ: run two more of each"),
        ({0: 0.5, 1: 0.6, 2: 0.7}, {5: 0.4}, "one seed does not show"),
        ({0: 0.3, 1: 0.7}, {0: 0.2, 1: 0.6}, "the same in every seed"),
        ({0: 0.2, 1: 0.6, 2: 0.4}, {0: 0.4, 1: 0.2, 2: 0.6}, "both means are the same"),
    ],
)
def test_what_is_missing_for_a_plan_is_said(ours: dict[int, float], theirs: dict[int, float], missing: str) -> None:
    found = plan(ours, theirs)
    assert isinstance(found, str)
    assert missing in found
