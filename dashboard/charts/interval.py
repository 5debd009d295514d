"""Means and differences of means over seeds, with their 95 % intervals: is one setting better than another, or is it luck?"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, stdev, variance

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.95
LEAST = 3
"""Seeds of each setting: of two, an interval is six times as wide as of three, and says nothing in practice."""
_ROUNDING = 1e-9  # a share of the largest value


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
    """The mean and its t interval: mean ± t(n − 1) · std / √n; None without values."""
    n = len(values)
    if n == 0:
        return None
    mean = fmean(values)
    if n == 1:
        return Estimate(mean, None, None, None, 1)
    if max(values) - min(values) <= _ROUNDING * max(map(abs, values)):  # beyond that it is rounding
        return Estimate(mean, 0.0, None, None, n)
    spread = stdev(values)
    half = t_quantile(n - 1) * spread / math.sqrt(n)
    return Estimate(mean, spread, mean - half, mean + half, n)


@lru_cache(maxsize=1024)
def t_quantile(degrees: int) -> float:
    """Half the width of the central 95 % of Student's t distribution, by bisection of its distribution function."""
    return reached(lambda t: _central(t, degrees), LEVEL, most=16.0)  # the widest, with one degree of freedom, is 12.7


def reached(distribution: Callable[[float], float], share: float, *, most: float) -> float:
    """The value up to which a distribution has this share, between 0 and `most`, by bisection."""
    low, high = 0.0, most
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if distribution(middle) < share else (low, middle)
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


@dataclass(frozen=True)
class Difference:
    """The mean of one setting minus that of another.

    `low` to `high` is the 95 % interval; None if a setting has fewer than three values, or if all differences are
    equal. `seeds` counts the values of each: for pairs, the seeds that both have. `shared` of the seeds are in both.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: tuple[int, int]
    shared: int
    paired: bool


def difference(values: Mapping[int, float], against: Mapping[int, float]) -> Difference | None:
    """Two settings, each seed -> value; None without values.

    Paired by seed if they share three or more, or if they share any and one of them has fewer than three.
    """
    samples = samples_of(values, against)
    if not samples:
        return None
    low = high = None
    mean, shared, seeds = sum(map(fmean, samples)), len(values.keys() & against.keys()), list(map(len, samples))
    if min(seeds) >= LEAST and (variances := variances_of(values, against)):
        half = float(half_width(variances, seeds))
        low, high = mean - half, mean + half
    return Difference(mean, low, high, (seeds[0], seeds[-1]), shared, len(samples) == 1)


def samples_of(values: Mapping[int, float], against: Mapping[int, float]) -> list[list[float]]:
    """Whose means add up to the difference: one of the pairs' differences, or one of each setting, the other's negated. Empty without values."""
    shared = sorted(values.keys() & against.keys())
    if len(shared) >= LEAST or (shared and min(len(values), len(against)) < LEAST):
        return [[values[seed] - against[seed] for seed in shared]]
    return [list(values.values()), [-value for value in against.values()]] if values and against else []


def variances_of(values: Mapping[int, float], against: Mapping[int, float]) -> list[float]:
    """Of each sample; empty if none of them has a spread, or one of them has a single value.

    Pass rates are multiples of one over the items, so that a few seeds often have equal differences by chance: an interval of no
    width would call them certain.
    """
    samples = samples_of(values, against)
    rounding = _ROUNDING * max(map(abs, (*values.values(), *against.values())), default=0.0)
    if any(len(sample) < 2 for sample in samples) or all(max(one) - min(one) <= rounding for one in samples):
        return []
    return [variance(sample) for sample in samples]


def half_width(variances: Sequence[ArrayLike], seeds: Sequence[int]) -> NDArray[np.float64]:
    """Of the 95 % interval of the sum of the samples' means: Student's t of one sample, Welch's of two; of many such at once, if arrays are given."""
    errors = [np.asarray(one, float) / n for one, n in zip(variances, seeds, strict=True)]
    parts = sum(error**2 / (n - 1) for error, n in zip(errors, seeds, strict=True))
    whole = np.sum(errors, axis=0)
    degrees = np.floor(whole**2 / parts + 1e-9)  # as Welch and Satterthwaite count them; of one sample n − 1
    different, places = np.unique(degrees, return_inverse=True)
    quantiles = np.array([t_quantile(int(one)) for one in different])[places]
    return np.asarray(quantiles.reshape(whole.shape) * np.sqrt(whole))


def verdict(found: Difference | None) -> str:
    """A difference in words: "+0.040, 95 % −0.010 to +0.090: not distinguishable with 3 seeds"."""
    if found is None:
        return "no finished runs to compare"
    if found.low is None or found.high is None:
        return f"{_signed(found.mean, found.mean)}: {_why_no_interval(found)}"
    word = "not distinguishable"
    if found.low > 0:
        word = "higher"
    elif found.high < 0:
        word = "lower"
    largest = max(abs(found.mean), abs(found.low), abs(found.high))
    mean, low, high = (_signed(value, largest) for value in (found.mean, found.low, found.high))
    return f"{mean}, 95 % {low} to {high}: {word} with {_counts(found)}"


def _why_no_interval(found: Difference) -> str:
    if min(found.seeds) >= LEAST:
        equal = "the same in each" if found.paired else "the same in all seeds of each"
        return f"{equal}, so there is no interval and no verdict with {_counts(found)}; more seeds or more held-out prompts would tell"
    if found.paired:
        return f"{'one seed' if found.shared == 1 else 'two seeds'} cannot tell; run three or more"
    return f"{found.seeds[0]} against {found.seeds[1]} seeds cannot tell; run three or more of each"


def _counts(found: Difference) -> str:
    if found.paired:
        return f"{found.shared} seeds"
    sharing = ("no seed", "one seed", "two seeds")[found.shared]
    return f"{found.seeds[0]} against {found.seeds[1]} seeds, unpaired, as they share {sharing}"


def _signed(value: float, largest: float) -> str:
    """Three decimals; of what is small or large, three digits of the largest number beside it."""
    decimals = 3 if largest == 0 or 0.01 <= largest < 10 else min(12, max(0, 2 - math.floor(math.log10(abs(largest)))))
    text = f"{value:+,.{decimals}f}"
    return text.replace("-", "−") if float(text.replace(",", "")) else text[1:]
