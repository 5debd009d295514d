"""Lists of values as people type them, and the points of a sweep: a grid of all values, or random draws, the same for the same seed."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from random import Random
from typing import TypeAlias

from pydantic import ValidationError

from backend.contract.base import Json
from backend.contract.config import RUN_CONFIG
from backend.contract.yaml_text import Unreadable as NoPlainValue
from backend.contract.yaml_text import read
from dashboard.form.schema import Field, Real, Text, Whole
from dashboard.stored import put
from dashboard.sweep.fields import Config, Sweepable, value_at
from dashboard.wording import read_lines, read_number, show_lines, show_number

NONE = "none"  # how the absence of a number is typed
FEW = 6  # up to this number of words, all are swept at first
_SHOWN = 80  # letters of a line that cannot be read


class Unreadable(ValueError):
    """The text is not a list of values of the field; the message says why."""


def read_values(field: Field, text: str) -> list[Json]:
    """`1e-5, 3e-5 1e-4` as numbers, each once; texts and anything else one a line. Raises Unreadable."""
    if isinstance(field, Whole | Real):
        return distinct(read_one(field, part) for part in re.split(r"[,;\s]+", text) if part)
    if isinstance(field, Text):
        lines = read_lines(text)
        return distinct(lines if isinstance(lines, list) else [lines])
    return distinct(_read_yaml(line) for line in text.split("\n") if line.strip())


def write_values(field: Field, values: Sequence[Json]) -> str:
    """The values as `read_values` reads them."""
    if isinstance(field, Whole | Real):
        return ", ".join(NONE if value is None else show_number(value) for value in values)
    if isinstance(field, Text):
        return show_lines([str(value) for value in values if value is not None])
    return "\n".join(json.dumps(value, ensure_ascii=False) for value in values)  # which is YAML, on one line


def read_one(field: Field, text: str) -> int | float | None:
    """The number that the field would hold. Raises Unreadable."""
    if text.strip().lower() == NONE and field.optional:
        return None
    number = read_number(text)
    if not isinstance(number, float):
        raise Unreadable(f"“{text.strip()}” is not a number" if text.strip() else "needs a number")
    if not isinstance(field, Whole):
        return number
    if not number.is_integer():
        raise Unreadable(f"{show_number(number)} is not a whole number")
    whole = int(number)
    if field.minimum is not None and whole < field.minimum:
        raise Unreadable(f"{whole} is below the minimum, {field.minimum}")
    if field.maximum is not None and whole > field.maximum:
        raise Unreadable(f"{whole} is above the maximum, {field.maximum}")
    return whole


def read_bound(field: Field, text: str) -> float:
    """An end of a range. Raises Unreadable."""
    number = read_one(field, text)
    if number is None:
        raise Unreadable(f"both ends of a range must be numbers; “{NONE}” is not a number")
    return number


def suggested(one: Sweepable, base: Config) -> list[Json]:
    """Values to begin with: the words where they are few, the base's number and some near it that the base would take."""
    own = value_at(one, base)
    if one.words is not None:
        return [word for word in one.words if len(one.words) <= FEW or word == own]
    if not one.numeric or not isinstance(own, int | float):
        return [own]
    return [value for value in _near(one.field, own, (0.5, 1, 2)) if value == own or accepted(base, one.path, value)]


def bounds(one: Sweepable, base: Config) -> tuple[str, str]:
    """The ends of a range to begin with, as they would be typed: as far as ten times around the base's number."""
    own = value_at(one, base)
    if not isinstance(own, int | float):
        return "", ""
    whole = isinstance(one.field, Whole)
    low = [*_near(one.field, own, (0.1, 0.2, 0.5)), *([own - 1] if whole else [])] if own else []
    high = [*_near(one.field, own, (10, 5, 2))[:: 1 if own else -1], *([own + 1] if whole else [])]
    taken = [next((value for value in ends if accepted(base, one.path, value)), own) for ends in (low, high)]
    return show_number(taken[0]), show_number(taken[1])


def _near(field: Field, own: float, factors: Sequence[float]) -> list[Json]:
    """The number times each factor, as people write numbers; near 0 some that are small."""
    whole = isinstance(field, Whole)
    if own == 0:
        return [0, 10] if whole else [0.0, 0.01, 0.1]
    return distinct(round(own * by) if whole else float(f"{own * by:.3g}") for by in factors)


def accepted(base: Config, path: str, value: Json) -> bool:
    """Whether the base with this value is a valid configuration."""
    try:
        RUN_CONFIG.validate_python(put(dict(base), path, value))
    except ValidationError:
        return False
    return True


def distinct(values: Iterable[Json]) -> list[Json]:
    """Each value once, in their order; 1 and True are two."""
    return list({repr(value): value for value in values}.values())


def _read_yaml(line: str) -> Json:
    try:
        return read(line)
    except NoPlainValue as error:
        shown = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
        raise Unreadable(f"“{shown}” cannot be read: write a value as in YAML, such as [a, b] ({error})") from error


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
        # as fine as the range asks for, on a log scale at least as fine as the value does
        finest = min(value, self.high - self.low) if self.log else self.high - self.low
        decimals = DIGITS - 1 - math.floor(math.log10(finest)) + (0 if self.log and finest == value else 1)
        return float(min(max(round(value, decimals), self.low), self.high))

    def _at(self, share: float, low: float, high: float) -> float:
        if self.log:
            return math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        return low + share * (high - low)


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
        point = {
            path: source.draw(streams[path]) if isinstance(source, Range) else streams[path].choice(source)
            for path, source in sources.items()
        }
        points.setdefault(json.dumps(point, sort_keys=True), point)
        if len(points) == count:
            break
    return list(points.values())
