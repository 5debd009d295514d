"""Pages: a hard maximum, and cursors that say where the next one begins."""

from typing import Annotated

from fastapi import Query

from backend.errors import Invalid
from backend.field_errors import FieldError

MAX_LIMIT = 200

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
Cursor = Annotated[str | None, Query(max_length=100)]
Id = Annotated[int, Query(ge=0, le=2**63 - 1)]


def position(cursor: str | None) -> int | None:
    """The number in a cursor. Raises Invalid for anything that no page of ours answered."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit()) or len(cursor) > 18:
        raise Invalid(FieldError("cursor", "is not one that a page answered; leave it out to start anew"))
    return int(cursor)
