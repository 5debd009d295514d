"""The base of every model in the contract, and the text and number types that survive JSON, SQL and a screen."""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

# NUL ends a C string inside SQLite and a lone surrogate has no UTF-8: neither can be stored as it is.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean(text: object) -> object:
    """The text with NUL and lone surrogates replaced by U+FFFD; anything but a string passes through."""
    return _UNSTORABLE.sub("\ufffd", text) if isinstance(text, str) else text


CleanText = Annotated[str, BeforeValidator(clean)]
ShortText = Annotated[CleanText, Field(max_length=200)]
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Json = JsonValue


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
