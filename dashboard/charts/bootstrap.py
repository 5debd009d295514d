"""Is one setting better than another, or is it luck: the difference of two means, resampled over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

import numpy as np
from numpy.typing import NDArray

from dashboard.charts.interval import LEVEL, t_quantile

RESAMPLES = 10_000
_NORMAL = 1.959963984540054  # half the width of the central 95 % of the normal distribution

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """The mean of one setting minus that of another.

    `low` to `high` is the 95 % interval; None where a setting has a single value. `runs` counts the values of each: where they
    are paired, the seeds that both have. `shared` of the seeds are in both.
    """

    mean: float
    low: float | None
    high: float | None
    runs: tuple[int, int]
    shared: int
    paired: bool


def difference(values: Mapping[int, float], against: Mapping[int, float]) -> Difference | None:
    """Two settings, each seed -> value: paired where they share two seeds or more, or all that they have; None of nothing."""
    shared = sorted(values.keys() & against.keys())
    if len(shared) > 1 or (shared and len(values) == len(against) == 1):
        found = [values[seed] - against[seed] for seed in shared]
        low, high = interval([found])
        return Difference(fmean(found), low, high, (len(shared), len(shared)), len(shared), paired=True)
    if not values or not against:
        return None
    ours, theirs = list(values.values()), list(against.values())
    low, high = interval([ours, [-value for value in theirs]])
    mean = fmean(ours) - fmean(theirs)
    return Difference(mean, low, high, (len(ours), len(theirs)), len(shared), paired=False)


def interval(samples: Sequence[Sequence[float]]) -> tuple[float | None, float | None]:
    """The 95 % bootstrap interval of the sum of the samples' means, each sample resampled by itself.

    The percentile interval is too narrow for few values: of three it misses the truth in one case of four. Its distances from
    the mean are therefore widened by √(n / (n − 1)), for the spread that a mean takes away, and by t(n − 1) / 1.96, for not
    knowing the spread (Hesterberg 2015, "What Teachers Should Know About the Bootstrap", 3.2). The degrees of freedom of two
    samples are Welch's.
    """
    if min(len(sample) for sample in samples) < 2:
        return None, None
    random = np.random.default_rng(0)  # the same runs give the same interval
    away = sum((_resampled(np.asarray(sample), random) for sample in samples), start=np.zeros(RESAMPLES))
    low, high = np.quantile(away, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) * t_quantile(_degrees(samples)) / _NORMAL
    mean = sum(fmean(sample) for sample in samples)
    return mean + float(low), mean + float(high)


def _resampled(sample: Floats, random: np.random.Generator) -> Floats:
    """How far the means of resamples lie from the mean; (RESAMPLES,)."""
    n = len(sample)
    residuals = (sample - sample.mean()) * math.sqrt(n / (n - 1))
    return np.asarray(residuals[random.integers(0, n, (RESAMPLES, n))].mean(axis=1), dtype=np.float64)


def _degrees(samples: Sequence[Sequence[float]]) -> int:
    """Of one sample n − 1; of several as Welch and Satterthwaite count them, rounded down."""
    errors = [variance(sample) / len(sample) for sample in samples]
    if not any(errors):
        return sum(len(sample) - 1 for sample in samples)
    parts = sum(error**2 / (len(sample) - 1) for error, sample in zip(errors, samples, strict=True))
    return max(1, math.floor(sum(errors) ** 2 / parts + 1e-9))


def verdict(found: Difference | None) -> str:
    """What a difference says: "+0.040, 95 % −0.010 to +0.090: not distinguishable with 3 seeds"."""
    if found is None:
        return "no finished runs to compare"
    if found.low is None or found.high is None:
        few = "one seed" if found.paired else f"{_counts(found)}, unpaired"
        return f"{_signed(found.mean, found.mean)} with {few}: no interval"
    if found.low > 0:
        word = "higher"
    elif found.high < 0:
        word = "lower"
    else:
        word = "not distinguishable"
    largest = max(abs(found.mean), abs(found.low), abs(found.high))
    mean, low, high = (_signed(value, largest) for value in (found.mean, found.low, found.high))
    if found.paired:
        return f"{mean}, 95 % {low} to {high}: {word} with {found.shared} seeds"
    sharing = "one seed" if found.shared else "no seed"
    return f"{mean}, 95 % {low} to {high}: {word} with {_counts(found)}, unpaired, as they share {sharing}"


def _counts(found: Difference) -> str:
    return f"{found.runs[0]} against {found.runs[1]} runs"


def _signed(value: float, largest: float) -> str:
    """Three decimals; of what is small or large, three digits of the largest number beside it."""
    decimals = 3 if largest == 0 or 0.01 <= largest < 10 else min(12, max(0, 2 - math.floor(math.log10(abs(largest)))))
    text = f"{value:+,.{decimals}f}"
    return text.replace("-", "−") if float(text.replace(",", "")) else text[1:]
