"""Means with their 95 % intervals over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, stdev

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean of n values. `std` (n − 1) and the t interval `low` to `high` need two values; None with one.

    Equal values have no interval either: one of no width would claim to be certain.
    """

    mean: float
    std: float | None
    low: float | None
    high: float | None
    n: int


def estimate(values: Sequence[float]) -> Estimate | None:
    """The mean and its t interval: mean ± t(n − 1) · std / √n. None of nothing."""
    n = len(values)
    if n == 0:
        return None
    mean = fmean(values)
    if n == 1:
        return Estimate(mean, None, None, None, 1)
    if max(values) - min(values) <= 1e-9 * max(map(abs, values)):  # beyond that it is rounding
        return Estimate(mean, 0.0, None, None, n)
    spread = stdev(values)
    half = t_quantile(n - 1) * spread / math.sqrt(n)
    return Estimate(mean, spread, mean - half, mean + half, n)


@lru_cache(maxsize=256)
def t_quantile(degrees: int) -> float:
    """Half the width of the central 95 % of Student's t distribution, by bisection of its distribution function."""
    low, high = 0.0, 16.0  # the widest, with one degree of freedom, is 12.7
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _central(middle, degrees) < LEVEL else (low, middle)
    return high


def _central(t: float, degrees: int) -> float:
    """P(|T| ≤ t), in closed form for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(1 + odd, degrees, 2):
        total += term
        term *= cosine**2 * k / (k + 1)
    return (angle + sine * total) * 2 / math.pi if odd else sine * total
