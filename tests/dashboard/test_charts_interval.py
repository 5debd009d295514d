"""Means and t intervals, against tables and sums made by hand."""

import math

import pytest

from dashboard.charts.interval import Estimate, estimate, t_quantile


@pytest.mark.parametrize(
    ("degrees", "expected"),
    # the printed table of the two-sided 95 % point
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (10, 2.228), (29, 2.045), (120, 1.980)],
)
def test_the_t_quantile_is_the_tables(degrees: int, expected: float) -> None:
    assert t_quantile(degrees) == pytest.approx(expected, abs=5e-4)


def test_with_many_seeds_the_quantile_is_the_normal_distributions() -> None:
    assert t_quantile(9_999) == pytest.approx(1.9602, abs=1e-4)


def test_one_degree_of_freedom_has_a_closed_form() -> None:
    assert t_quantile(1) == pytest.approx(math.tan(0.475 * math.pi), rel=1e-9)


def test_an_estimate_is_mean_and_t_interval() -> None:
    found = estimate([0.40, 0.42, 0.47])
    assert found is not None
    # deviations −0.03, −0.01, 0.04: squares sum to 0.0026, std = √0.0013 = 0.0360555
    assert found.mean == pytest.approx(0.43)
    assert found.std == pytest.approx(0.0360555, abs=1e-7)
    assert found.low == pytest.approx(0.43 - 4.302653 * 0.0360555 / math.sqrt(3), abs=1e-6)
    assert found.high == pytest.approx(0.43 + 4.302653 * 0.0360555 / math.sqrt(3), abs=1e-6)
    assert found.n == 3


def test_one_value_has_no_interval_and_none_no_mean() -> None:
    assert estimate([0.5]) == Estimate(0.5, None, None, None, 1)
    assert estimate([]) is None


def test_equal_values_have_no_interval_of_no_width() -> None:
    assert estimate([0.25, 0.25, 0.25]) == Estimate(0.25, 0.0, None, None, 3)
    found = estimate([0.3 - 0.2, 0.7 - 0.6])  # equal up to rounding
    assert found is not None
    assert (found.low, found.high) == (None, None)
