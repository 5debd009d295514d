"""Lists of values as people type them, and the ones to begin with."""

import json
import re
from collections.abc import Iterable, Sequence

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
        raise Unreadable(f"{whole} is below the least, {field.minimum}")
    if field.maximum is not None and whole > field.maximum:
        raise Unreadable(f"{whole} is above the most, {field.maximum}")
    return whole


def read_bound(field: Field, text: str) -> float:
    """An end of a range. Raises Unreadable."""
    number = read_one(field, text)
    if number is None:
        raise Unreadable(f"a range has numbers at both ends, and “{NONE}” is none")
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
