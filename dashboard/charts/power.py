"""How many seeds it would take to tell two settings apart: by simulation of the very interval that a comparison shows.

The simulated seeds are drawn from a normal distribution with the spread that was seen. That spread is itself an estimate, from few
seeds a poor one, so every answer is a range: what follows from its 95 % interval.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean
from typing import NamedTuple

import numpy as np

from dashboard.charts.interval import LEAST, LEVEL, half_width, reached, samples_of, variances_of

WANTED = 0.8
"""The power that is planned for: the share of such comparisons that end in a verdict."""
MOST = 200
"""Seeds of each setting, at most: as many runs as a page compares."""
_DRAWS = 20_000  # simulated comparisons; the power that they show is off by at most 0.7 points (95 %)
_SEED = 0  # the same question has the same answer


class Range(NamedTuple):
    """What follows from the spread as it was seen, and from both ends of its 95 % interval. For seeds, None is more than `MOST`."""

    least: float | None
    likely: float | None
    most: float | None


@dataclass(frozen=True)
class Plan:
    """For a difference of this size: what the seeds that are there can do, and how many of each setting it would take."""

    effect: float
    seeds: tuple[int, int]
    power: Range  # from 0 to 1, of a repetition with as many seeds
    needed: Range  # seeds of each setting for `WANTED`


def plan(values: Mapping[int, float], against: Mapping[int, float], effect: float | None = None) -> Plan | str:
    """Two settings, each seed -> value, compared as `difference` does. `effect` is the difference to tell, by default the one seen.

    Returns what is missing, in words, if nothing can be planned.
    """
    samples = samples_of(values, against)
    if not samples:
        return "no finished runs of both yet"
    seeds = len(samples[0]), len(samples[-1])
    effect = abs(sum(map(fmean, samples)) if effect is None else effect)
    if min(seeds) < 2:
        return "one seed does not show how far seeds differ: run two more of each"
    variances = variances_of(values, against)
    if not variances:
        return "the same in every seed, so that no spread is known: more seeds or more held-out prompts would show one"
    if effect == 0:
        return "both means are the same: name a difference that would matter"
    scales = (1.0, *spread_interval(variances, seeds[: len(samples)]))
    now = [power(effect, tuple(scale * one for one in variances), seeds[: len(samples)]) for scale in scales]
    needed = [needed_seeds(effect, tuple(scale * one for one in variances)) for scale in scales]
    return Plan(effect, seeds, Range(now[2], now[0], now[1]), Range(needed[1], needed[0], needed[2]))


def spread_interval(variances: Sequence[float], seeds: Sequence[int]) -> tuple[float, float]:
    """The 95 % interval of the variance behind the difference, in multiples of the one seen.

    Of one sample it is that of the χ² distribution. Of two samples, each keeps its own degrees of freedom (Graybill & Wang,
    Journal of the American Statistical Association 75, 1980): Satterthwaite's are an estimate, too many where the smaller sample
    happens to vary little.
    """
    errors, tail = [one / n for one, n in zip(variances, seeds, strict=True)], (1 - LEVEL) / 2

    def apart(share: float) -> float:
        ends = ((n - 1) / _chi_square_quantile(share, n - 1) for n in seeds)
        return math.hypot(*(one * (end - 1) for one, end in zip(errors, ends, strict=True))) / sum(errors)

    return 1 - apart(1 - tail), 1 + apart(tail)


@lru_cache(maxsize=1024)
def _chi_square_quantile(share: float, degrees: int) -> float:
    return reached(lambda x: _chi_square(x, degrees), share, most=10.0 * degrees + 10)


def _chi_square(x: float, degrees: int) -> float:
    """P(χ² ≤ x), in closed form for whole degrees of freedom (Abramowitz and Stegun, 26.4.4 and 26.4.5)."""
    half, odd = x / 2, degrees % 2
    above = math.erfc(math.sqrt(half)) if odd else 0.0
    term = math.exp(-half) * (math.sqrt(half / math.pi) * 2 if odd else 1.0)
    for k in range(degrees // 2):
        above += term
        term *= half / (k + (1.5 if odd else 1))
    return 1 - above


def needed_seeds(effect: float, variances: tuple[float, ...]) -> int | None:
    """The fewest seeds of each setting with which the power is `WANTED` or more; None if `MOST` are too few."""
    low, high = LEAST - 1, MOST
    if _power_of(effect, variances, MOST) < WANTED:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _power_of(effect, variances, middle) < WANTED else (low, middle)
    return high


def _power_of(effect: float, variances: tuple[float, ...], seeds: int) -> float:
    return power(effect, variances, (seeds,) * len(variances))


@lru_cache(maxsize=4096)
def power(effect: float, variances: tuple[float, ...], seeds: tuple[int, ...]) -> float:
    """The share of comparisons whose interval excludes 0, on the right side, if the means really differ by `effect`.

    `variances` and `seeds` are those of the paired differences, or of each setting. A comparison is simulated by what its interval is
    made of: of normal values, the means are normal and the variances are χ², each independent of the others.
    """
    if min(seeds) < LEAST:
        return 0.0
    random = np.random.default_rng(_SEED)
    error = math.sqrt(sum(one / n for one, n in zip(variances, seeds, strict=True)))
    means = random.normal(effect, error, _DRAWS)
    drawn = [one * random.chisquare(n - 1, _DRAWS) / (n - 1) for one, n in zip(variances, seeds, strict=True)]
    return float(np.mean(means > half_width(drawn, seeds)))
