"""The base of every model in the contract, and the text and number types that survive JSON, SQL and a screen."""

import json
import math
import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

# NUL ends a C string inside SQLite and a lone surrogate has no UTF-8: neither can be stored as it is.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean(text: object) -> object:
    """The text with NUL and lone surrogates replaced by U+FFFD; anything but a string passes through."""
    return _UNSTORABLE.sub("\ufffd", text) if isinstance(text, str) else text


# json.dumps would make one for each value
_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def to_json(value: object) -> str:
    """Compact JSON that every database stores: no NaN, no lone surrogates."""
    return str(clean(_COMPACT.encode(value)))


MOST_LEVELS = 64


def storable(value: object) -> object:
    """Free JSON as it is. Raises ValueError for infinity and NaN, which no JSON has, and for values nested very deeply.

    Python reads both, and then can neither store nor answer them.
    """
    level = [value]
    for _ in range(MOST_LEVELS):
        if any(isinstance(one, float) and not math.isfinite(one) for one in level):
            raise ValueError("holds a number that is not finite, which JSON cannot carry; leave it out, or write null")
        parts = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = [child for part in parts for child in part]
        if not level:
            return value
    raise ValueError(f"is nested deeper than {MOST_LEVELS} levels; flatten it")


def finite(value: float | None) -> float | None:
    """The number, or None if it is missing, not finite or too large for a float: what was not measured is never shown as 0."""
    try:
        return None if value is None or not math.isfinite(value) else float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None


def cut(length: int) -> BeforeValidator:
    """Keeps the beginning of a text: for words about a failure, which are better short than refused."""
    return BeforeValidator(
        lambda text: f"{text[: length - 1]}…" if isinstance(text, str) and len(text) > length else text
    )


CleanText = Annotated[str, BeforeValidator(clean)]
ShortText = Annotated[CleanText, Field(max_length=200)]
LONGEST = 2**22  # characters of a prompt or a completion: more than any context holds
LongText = Annotated[CleanText, Field(max_length=LONGEST)]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Json = Annotated[JsonValue, BeforeValidator(storable)]


class Misfit(ValueError):
    """Fields that do not go together: the message names the numbers, `field` is the one to look at, `fix` would settle it.

    Both are dotted paths, counted from the model whose validator raises this.
    """

    def __init__(self, message: str, field: str, fix: Mapping[str, Json] | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.fix: Mapping[str, Json] = fix or {}


class Frozen(BaseModel):
    """A value that never changes and refuses unknown fields and non-finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Record(BaseModel):
    """A payload between the processes; unknown fields are ignored, so that a newer side can talk to an older one."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)
