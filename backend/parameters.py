"""Path and query parameters that routes share: bounded numbers, pages with a hard maximum, cursors."""

from typing import Annotated

from fastapi import Path, Query

from backend.errors import Invalid
from backend.field_errors import FieldError

RowId = Annotated[int, Path(ge=1, le=2**63 - 1)]
LAST_STEP = 2**53  # far beyond every run, and steps near it can be added to
StepNumber = Annotated[int, Path(ge=0, le=LAST_STEP)]
Limit = Annotated[int, Query(ge=1, le=200)]
Cursor = Annotated[str | None, Query(max_length=100)]
Step = Annotated[int | None, Query(ge=-1, le=LAST_STEP)]
RunIds = Annotated[str, Query(alias="runs", max_length=400, description="Run numbers, separated by commas.")]

MAX_RUNS = 20


def position(cursor: str | None) -> int | None:
    """The number in a cursor. Raises Invalid for anything that no page of ours answered."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit()) or len(cursor) > 18:
        raise Invalid(FieldError("cursor", "is not one that a page answered; leave it out to start anew"))
    return int(cursor)


def run_ids(text: str) -> list[int]:
    """The numbers in a list of runs, each once. Raises Invalid for anything else, and for too many."""
    entries = list(dict.fromkeys(text.split(",")))
    if not all(entry.isascii() and entry.isdigit() and len(entry) <= 18 for entry in entries):
        raise Invalid(FieldError("runs", "must be run numbers, separated by commas"))
    if len(entries) > MAX_RUNS:
        raise Invalid(FieldError("runs", f"must name at most {MAX_RUNS} runs (got {len(entries)})"))
    return [int(entry) for entry in entries]
