"""Whether an upload has what a configuration reads from it."""

from functools import lru_cache
from itertools import islice
from pathlib import Path

from sqlalchemy import Connection, select

from backend.contract.config import RunConfig, data_of
from backend.contract.task import as_text, missing_text, template_columns
from backend.errors import Invalid
from backend.field_errors import FieldError
from backend.storage.tables import upload
from backend.uploads import jsonl
from backend.uploads.conversion import NAMED, Missing, note_columns
from backend.uploads.store import path_of

NAMING = ("prompt_column", "answer_column", "source_column", "chosen_column", "rejected_column")
"""The fields that name a column."""
LOOKED_AT = 10_000
"""Rows that are read to find two different prompts."""


def upload_of(config: RunConfig) -> int | None:
    """The upload that a configuration reads, if any."""
    read = data_of(config)
    if read is None:
        return None
    kind, _, number = read[1].source.partition(":")
    return int(number) if kind == "upload" else None


def require_columns(tx: Connection, home: Path, config: RunConfig) -> None:
    """Raises Invalid if the upload is not there, or lacks a column in some rows (numbered from 1, as the lines are), or one prompt is all it has and is held out."""
    read, upload_id = data_of(config), upload_of(config)
    if read is None or upload_id is None:
        return
    path, data = read
    found = tx.execute(select(upload).where(upload.c.id == upload_id)).mappings().one_or_none()
    file = path_of(home, upload_id)
    if found is None or not file.exists():
        raise Invalid(FieldError(f"{path}.source", f"there is no upload {upload_id}; upload the file first"))
    missing = found["missing"] if found["missing"] is not None else _missing(file)
    errors = []
    wanted = [(name, getattr(data, name, None)) for name in NAMING]
    wanted += [("template", name) for name in template_columns(getattr(data, "template", ""), found["columns"])]
    for name, column in wanted:
        if column is not None:
            nowhere = found["rows"], list(range(1, min(found["rows"], NAMED) + 1))
            count, first = missing.get(column, (0, [])) if column in found["columns"] else nowhere
            if count:
                errors.append(FieldError(f"{path}.{name}", missing_text(column, count, first)))
    if not errors and data.held_out and _prompts(file, data.prompt_column) == 1:
        what = f"holds out the only prompt that upload {upload_id} has, and nothing is left to train on"
        errors.append(FieldError(f"{path}.held_out", f"{what}; set it to 0, or upload rows with other prompts"))
    if errors:
        raise Invalid(*errors)


@lru_cache(maxsize=256)
def _prompts(file: Path, column: str) -> int | None:
    """How many prompts the rows have: 1, 2 for more, or None if too many rows at the beginning have the same."""
    rows = jsonl.rows_of(file)
    found = set[str]()
    for row in islice(rows, LOOKED_AT):
        found.add(as_text(row.get(column)))
        if len(found) > 1:
            return 2
    return 1 if next(rows, None) is None else None


@lru_cache(maxsize=64)
def _missing(file: Path) -> dict[str, Missing]:
    """Counted anew for an upload from before it was kept; a file's number is never given again."""
    missing: dict[str, Missing] = {}
    for number, row in enumerate(jsonl.rows_of(file), 1):
        note_columns(missing, number, row)
    return missing
