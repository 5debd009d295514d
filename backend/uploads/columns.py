"""Whether an upload has what a configuration reads from it."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from sqlalchemy import Connection, select

from backend.contract.chat import raw_problem
from backend.contract.config import RunConfig, data_of
from backend.contract.preference import DatasetPairs
from backend.contract.queries import SplitQuery
from backend.contract.task import Dataset, missing_text, template_columns, unknown_places, untrained_text
from backend.errors import Invalid
from backend.field_errors import FieldError
from backend.storage.tables import upload
from backend.uploads import jsonl
from backend.uploads.conversion import NAMED, Missing, note_columns
from backend.uploads.reading import COUNTED_BYTES, read
from backend.uploads.store import path_of

NAMING = ("prompt_column", "answer_column", "source_column", "chosen_column", "rejected_column")
"""The fields that name a column."""


def upload_of(config: RunConfig) -> int | None:
    """The upload that a configuration reads, if any."""
    read = data_of(config)
    if read is None:
        return None
    kind, _, number = read[1].source.partition(":")
    return int(number) if kind == "upload" else None


def require_columns(tx: Connection, home: Path, config: RunConfig) -> None:
    """Raises Invalid if the upload is not there, lacks a column in some rows (numbered from 1, as the lines are), or would fail the run."""
    described, upload_id = data_of(config), upload_of(config)
    if described is None or upload_id is None:
        return
    path, data = described
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
    unknown = unknown_places(getattr(data, "template", ""), found["columns"])
    if unknown:
        errors.append(FieldError(f"{path}.template", _unknown_text(unknown, found["columns"])))
    if not errors and found["size_bytes"] <= COUNTED_BYTES:  # a run reads larger ones when it begins
        errors += _of_rows(file, path, data)
    if errors:
        raise Invalid(*errors)


def _unknown_text(names: list[str], columns: list[str]) -> str:
    places = ", ".join(f"{{{name}}}" for name in names)
    known = ", ".join(f"{{{name}}}" for name in dict.fromkeys(["prompt", *columns]))
    what = "is not a column" if len(names) == 1 else "are not columns"
    return f"{places} {what}: nothing would replace it; there are {known:.500}. For braces as they stand, put spaces inside"


def _of_rows(file: Path, path: str, data: Dataset | DatasetPairs) -> Iterator[FieldError]:
    """What only the rows themselves show: prompts that cannot be asked, and shares of sources without a row to train on."""
    shares = data.shares if isinstance(data, Dataset) else {}
    source_column = data.source_column if isinstance(data, Dataset) else None
    query = SplitQuery(prompt_column=data.prompt_column, held_out=data.held_out, source_column=source_column)
    split, first_chat, problem = read(file, query, tuple(shares))
    if data.prompt_format == "raw" and first_chat is not None:
        yield FieldError(f"{path}.prompt_format", raw_problem(first_chat))
    elif problem is not None:
        yield FieldError(f"{path}.prompt_column", problem)
    elif not split.train and data.held_out:
        what = "holds out the only prompt that the upload has, and nothing is left to train on"
        yield FieldError(f"{path}.held_out", f"{what}; set it to 0, or upload rows with other prompts")
    known = [name for name, counts in split.sources.items() if counts.train]
    for name in shares:
        if name not in known:
            yield FieldError(f"{path}.shares", untrained_text(name, known))


@lru_cache(maxsize=64)
def _missing(file: Path) -> dict[str, Missing]:
    """Counted anew for an upload from before it was kept; a file's number is never given again."""
    missing: dict[str, Missing] = {}
    for number, row in enumerate(jsonl.rows_of(file), 1):
        note_columns(missing, number, row)
    return missing
