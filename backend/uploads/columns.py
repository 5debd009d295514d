"""Whether an upload has what a configuration reads from it."""

from pathlib import Path

from backend.contract.grpo import GrpoConfig
from backend.contract.sample import SampleConfig
from backend.contract.task import Dataset
from backend.errors import Invalid
from backend.field_errors import FieldError
from backend.uploads import jsonl
from backend.uploads.store import path_of

SHOWN = 10  # row numbers in a message


def upload_of(config: GrpoConfig | SampleConfig) -> int | None:
    """The upload that a configuration reads, if any."""
    if isinstance(config, GrpoConfig) and isinstance(config.task, Dataset):
        kind, _, number = config.task.source.partition(":")
        return int(number) if kind == "upload" else None
    return None


def require_columns(home: Path, config: GrpoConfig | SampleConfig) -> None:
    """Raises Invalid where the upload is not there, or lacks a column in some rows (numbered from 1, as the lines are)."""
    upload_id = upload_of(config)
    if upload_id is None or not isinstance(config, GrpoConfig) or not isinstance(config.task, Dataset):
        return
    path = path_of(home, upload_id)
    if not path.exists():
        raise Invalid(FieldError("task.source", f"there is no upload {upload_id}; upload the file first"))
    wanted = {"task.prompt_column": config.task.prompt_column, "task.answer_column": config.task.answer_column}
    missing: dict[str, list[int]] = {field: [] for field, column in wanted.items() if column is not None}
    for number, row in enumerate(jsonl.rows_of(path), 1):
        for field, rows in missing.items():
            if row.get(str(wanted[field])) is None:
                rows.append(number)
    errors = [FieldError(field, _missing(str(wanted[field]), rows)) for field, rows in missing.items() if rows]
    if errors:
        raise Invalid(*errors)


def _missing(column: str, rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:SHOWN]))
    rest = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return f"column {column} is missing in {'row' if len(rows) == 1 else 'rows'} {shown}{rest}"
