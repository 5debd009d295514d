"""Means with their 95 % intervals over seeds, and differences between two settings paired by seed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, stdev

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean of n values. `std` (n − 1) and the t interval `low` to `high` need two values; None with one."""

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
    spread = stdev(values)
    half = t_quantile(n - 1) * spread / math.sqrt(n)
    return Estimate(mean, spread, mean - half, mean + half, n)


def paired(values: Mapping[int, float], against: Mapping[int, float]) -> Estimate | None:
    """The mean of the differences at the seeds that both have; None where they share none."""
    return estimate([values[seed] - against[seed] for seed in sorted(values.keys() & against.keys())])


def verdict(difference: Estimate | None) -> str:
    """What a paired difference says: "+0.040, 95 % −0.010 to +0.090: not distinguishable with 3 seeds"."""
    if difference is None:
        return "no seed that both have finished"
    if difference.low is None or difference.high is None:
        return f"{_signed(difference.mean)} with one seed: no interval"
    if difference.low > 0:
        found = "higher"
    elif difference.high < 0:
        found = "lower"
    else:
        found = "not distinguishable"
    interval = f"95 % {_signed(difference.low)} to {_signed(difference.high)}"
    return f"{_signed(difference.mean)}, {interval}: {found} with {difference.n} seeds"


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


def _signed(value: float) -> str:
    text = f"{value:+.3f}"
    return text.replace("-", "−") if float(text) else "0.000"
