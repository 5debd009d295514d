"""A stored configuration with some fields replaced, by dotted path."""

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from backend.contract.base import Json
from backend.contract.config import RUN_CONFIG, RunConfig
from backend.errors import Invalid
from backend.field_errors import FieldError, field_errors


def overridden(config: Mapping[str, Json], overrides: Mapping[str, Json]) -> RunConfig:
    """The configuration with the overrides in place, validated anew. Raises Invalid."""
    changed: Any = copy.deepcopy(dict(config))
    for path, value in overrides.items():
        _put(changed, path, value)
    try:
        return RUN_CONFIG.validate_python(changed)
    except ValidationError as error:
        raise Invalid(*field_errors(error.errors(include_url=False), changed)) from None


def _put(config: Any, path: str, value: Json) -> None:
    *parents, last = path.split(".")
    place = config
    for entry in parents:
        place = _child(place, entry, path)
    if isinstance(place, list):
        place[_index(place, last, path)] = value
    elif isinstance(place, dict):
        place[last] = value
    else:
        raise Invalid(FieldError(path, "is not a field of the configuration"))


def _child(place: Any, entry: str, path: str) -> Any:
    if isinstance(place, list):
        return place[_index(place, entry, path)]
    if isinstance(place, dict) and entry in place:
        return place[entry]
    raise Invalid(FieldError(path, "is not a field of the configuration"))


def _index(place: list[Any], entry: str, path: str) -> int:
    if entry.isascii() and entry.isdigit() and len(entry) < 6 and int(entry) < len(place):
        return int(entry)
    raise Invalid(FieldError(path, f"has no entry {entry!r}; the list has {len(place)} entries, counted from 0"))
