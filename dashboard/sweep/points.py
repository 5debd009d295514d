"""The points of a sweep: a grid of all the values, or random draws; the same seed gives the same draws."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from random import Random
from typing import TypeAlias

from backend.contract.base import Json


def size(values: Mapping[str, Sequence[Json]]) -> int:
    """How many points the grid has; without a field it has none."""
    return prod(len(some) for some in values.values()) if values else 0


def grid(values: Mapping[str, Sequence[Json]]) -> list[dict[str, Json]]:
    """The points, the last field's values changing first."""
    return [dict(zip(values, point, strict=True)) for point in product(*values.values())] if values else []


TRIES = 50  # for each point, to find one that was not drawn yet
DIGITS = 3  # a draw is rounded to this share of its range, and reads as people write numbers


class EmptyRange(ValueError):
    """Nothing can be drawn from the range; the message says why."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included, uniform, or uniform in their logarithm. Raises EmptyRange."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise EmptyRange(f"a range goes up, and {self.low:g} is not below {self.high:g}")
        if not math.isfinite(self.high - self.low):
            raise EmptyRange(f"the range from {self.low:g} to {self.high:g} is wider than numbers go")
        if self.log and self.low <= 0:
            raise EmptyRange(f"a logarithmic scale needs numbers above 0, and the range begins at {self.low:g}")

    def draw(self, numbers: Random) -> float:
        """One of its numbers; an int where the range is of whole numbers."""
        share = numbers.random()
        if self.whole:  # each whole number has the width of 1, the ends too
            value: float = round(self._at(share, self.low - 0.5, self.high + 0.5))
            return int(min(max(value, self.low), self.high))
        value = self._at(share, self.low, self.high)
        return float(min(max(round(value, self._decimals(value)), self.low), self.high))

    def _at(self, share: float, low: float, high: float) -> float:
        if self.log:
            return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        return low + share * (high - low)

    def _decimals(self, value: float) -> int:
        """As fine as the range asks for, on a log scale at least as fine as the value does."""
        finest = min(value, self.high - self.low) if self.log else self.high - self.low
        return DIGITS - 1 - math.floor(math.log10(finest)) + (0 if self.log and finest == value else 1)


Source: TypeAlias = Range | Sequence[Json]
"""What a field is drawn from: a range of numbers, or values of which each is as likely as the others."""


def draw(sources: Mapping[str, Source], count: int, seed: int) -> list[dict[str, Json]]:
    """The given number of different points; fewer if no more could be found.

    More points begin with the same ones. Each field has its own stream of the seed, so that another field beside it leaves its
    draws as they are.
    """
    streams = {path: Random(f"{seed}/{path}") for path in sources}
    points: dict[str, dict[str, Json]] = {}
    for _ in range(count * TRIES if sources else 0):
        point = {path: _drawn(source, streams[path]) for path, source in sources.items()}
        points.setdefault(json.dumps(point, sort_keys=True), point)
        if len(points) == count:
            break
    return list(points.values())


def _drawn(source: Source, numbers: Random) -> Json:
    return source.draw(numbers) if isinstance(source, Range) else source[numbers.randrange(len(source))]
