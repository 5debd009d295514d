"""Path and query parameters that routes share: bounded numbers, pages with a hard maximum, cursors."""

from typing import Annotated

from fastapi import Path, Query

from backend.errors import Invalid
from backend.field_errors import FieldError

RowId = Annotated[int, Path(ge=1, le=2**63 - 1)]
StepNumber = Annotated[int, Path(ge=0, le=2**63 - 1)]
Limit = Annotated[int, Query(ge=1, le=200)]
Cursor = Annotated[str | None, Query(max_length=100)]


def position(cursor: str | None) -> int | None:
    """The number in a cursor. Raises Invalid for anything that no page of ours answered."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit()) or len(cursor) > 18:
        raise Invalid(FieldError("cursor", "is not one that a page answered; leave it out to start anew"))
    return int(cursor)
