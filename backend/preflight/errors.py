"""A refused configuration in words: one message per error, at its field, with a fix where one is obvious."""

from collections.abc import Mapping

from pydantic import ValidationError

from backend.contract.base import Json, Misfit
from backend.contract.preflight import Message
from backend.field_errors import field_errors

# pydantic's error type -> the part of its context that is the nearest allowed value
_NEAREST = {"greater_than_equal": "ge", "less_than_equal": "le"}


def error_messages(error: ValidationError, config: Mapping[str, Json]) -> list[Message]:
    """One message for each field that is wrong."""
    details = error.errors(include_url=False)
    messages: dict[str, Message] = {}
    for detail, found in zip(details, field_errors(details, config), strict=True):
        field, fix = found.field, None
        cause = detail.get("ctx", {}).get("error")
        nearest = detail.get("ctx", {}).get(_NEAREST.get(detail["type"], ""))
        if isinstance(cause, Misfit):
            fix = {_join(_parent(found.field, cause.field), path): value for path, value in cause.fix.items()} or None
        elif nearest is not None and field:
            fix = {field: nearest}
        earlier = messages.get(field)
        if earlier is not None:  # a choice of several types: each says why it is not the one
            messages[field] = earlier.model_copy(update={"text": f"{earlier.text}, or {found.message}"})
        else:
            messages[field] = Message(level="error", field=field or None, text=found.message, fix=fix)
    return list(messages.values())


def _parent(field: str, relative: str) -> str:
    """The path of the model that a relative path counts from."""
    return field.removesuffix(relative).removesuffix(".")


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)
