"""Whether an upload has what a configuration reads from it."""

from functools import lru_cache
from pathlib import Path

from backend.contract.config import RunConfig, data_of
from backend.contract.preference import DatasetPairs
from backend.contract.task import Dataset
from backend.errors import Invalid
from backend.field_errors import FieldError
from backend.uploads import jsonl
from backend.uploads.store import path_of

SHOWN = 10  # row numbers in a message


def upload_of(config: RunConfig) -> int | None:
    """The upload that a configuration reads, if any."""
    read = data_of(config)
    if read is None:
        return None
    kind, _, number = read[1].source.partition(":")
    return int(number) if kind == "upload" else None


def require_columns(home: Path, config: RunConfig) -> None:
    """Raises Invalid where the upload is not there, or lacks a column in some rows (numbered from 1, as the lines are)."""
    read, upload_id = data_of(config), upload_of(config)
    if read is not None and upload_id is not None:
        file = path_of(home, upload_id)
        if errors := _errors(file, upload_id, *read, file.exists()):
            raise Invalid(*errors)


@lru_cache(maxsize=64)
def _errors(
    file: Path, upload_id: int, path: str, data: Dataset | DatasetPairs, exists: bool
) -> tuple[FieldError, ...]:
    """What the upload lacks; kept, since a form asks again at every change, and a sweep for every run.

    The file is part of the key through its number, which is never given again; whether it is still there is not.
    """
    if not exists:
        return (FieldError(f"{path}.source", f"there is no upload {upload_id}; upload the file first"),)
    wanted = {
        f"{path}.{name}": column
        for name in ("prompt_column", "answer_column", "chosen_column", "rejected_column")
        if (column := getattr(data, name, None)) is not None
    }
    missing: dict[str, list[int]] = {field: [] for field in wanted}
    for number, row in enumerate(jsonl.rows_of(file), 1):
        for field, rows in missing.items():
            if row.get(str(wanted[field])) is None:
                rows.append(number)
    errors = []
    for field, rows in missing.items():
        if rows:
            word, shown = "row" if len(rows) == 1 else "rows", ", ".join(map(str, rows[:SHOWN]))
            more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
            errors.append(FieldError(field, f"column {wanted[field]} is missing in {word} {shown}{more}"))
    return tuple(errors)
