"""Validation errors in words: the dotted path of the field, as in the configuration, and what to do."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.contract.base import Misfit

SHOWN = 3
# pydantic's error type -> our words, filled in from the error's context
WORDS = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
    "missing": "is required",
    "extra_forbidden": "is not a known field",
    "literal_error": "must be {expected}",
    "union_tag_invalid": "kind must be one of {expected_tags}",
    "union_tag_not_found": "needs a kind",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "too_long": "must have at most {max_length} entries",
    "too_short": "must have at least {min_length} entries",
    "string_pattern_mismatch": "must match {pattern}",
    "finite_number": "must be a finite number",
    "int_parsing": "must be a whole number",
    "float_parsing": "type a number, such as 5e-5",
    "int_from_float": "must be a whole number",
    "json_invalid": "is not valid JSON: {error}",
}


@dataclass(frozen=True)
class FieldError:
    """One field and what is wrong with it; the field is empty where the whole is meant."""

    field: str
    message: str


def field_errors(errors: Iterable[Mapping[str, Any]], body: object) -> list[FieldError]:
    """Pydantic's errors in words. `body` is what was validated: it tells real fields from pydantic's own path entries."""
    found = []
    for error in errors:
        path, cause = field_path(error["loc"], body, error["type"]), error.get("ctx", {}).get("error")
        field = ".".join(filter(None, (path, cause.field))) if isinstance(cause, Misfit) else path
        found.append(FieldError(field, _message(error)))
    return found


def summary(errors: Sequence[FieldError]) -> str:
    """The first few in one line."""
    shown = [f"{error.field}: {error.message}" if error.field else error.message for error in errors[:SHOWN]]
    rest = len(errors) - len(shown)
    return "; ".join([*shown, f"and {rest} more"] if rest else shown)


def field_path(loc: Sequence[int | str], body: object, kind: str) -> str:
    """The dotted path that exists in the body: without `body`, `config`, and the tags of unions."""
    place, path = list(loc), []
    if place and place[0] in ("body", "query", "path", "header"):
        place.pop(0)
    value = body
    for position, entry in enumerate(place):
        if _holds(value, entry):
            value = value[entry]  # type: ignore[index]  # _holds has looked
        elif isinstance(value, dict) and kind == "missing" and position == len(place) - 1:
            value = None
        elif body is not None or kind == "json_invalid":
            continue  # a union's tag or the name of a type: no part of the body
        path.append(str(entry))
    if path and path[0] == "config":
        path.pop(0)
    return ".".join(path)


def _holds(value: object, entry: int | str) -> bool:
    if isinstance(value, list):
        return isinstance(entry, int) and entry < len(value)
    return isinstance(value, dict) and entry in value


_SINGULAR = {"entries": "1 entry", "characters": "1 character"}
_ONE_OF_MANY = re.compile(r"\b1 (entries|characters)\b")


def _message(error: Mapping[str, Any]) -> str:
    context = error.get("ctx", {})
    words = WORDS.get(error["type"])
    if words is None:
        text = str(error["msg"]).removeprefix("Value error, ")
        return text.replace("Input should be", "must be")
    written = words.format_map(_Words(context))
    if error["type"] == "string_too_short" and error.get("input") == "":
        return "is required"
    return _ONE_OF_MANY.sub(lambda one: _SINGULAR[one[1]], written) + _got(error.get("input"))


class _Words(dict[str, Any]):
    """A template's values: 10.0 reads as 10, and one that pydantic left out as an ellipsis."""

    def __init__(self, context: Mapping[str, Any]) -> None:
        whole = {name: int(value) for name, value in context.items() if isinstance(value, float) and value.is_integer()}
        super().__init__({**context, **whole})

    def __missing__(self, key: str) -> str:
        return "…"


def _got(value: object) -> str:
    """What was sent, where it is short; never NaN or infinity, which JSON cannot carry back."""
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        text = repr(value) if isinstance(value, str) else str(value)
        return f" (got {text})" if len(text) <= 60 else ""
    return ""
