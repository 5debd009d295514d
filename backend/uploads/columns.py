"""Whether an upload has what a configuration reads from it."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy import Connection, select

from backend.contract.base import Json
from backend.contract.cells import ANSWER, CHAT, base_of
from backend.contract.chat import raw_problem
from backend.contract.config import RUN_CONFIG, RunConfig, data_of
from backend.contract.preference import DatasetPairs
from backend.contract.queries import SplitQuery
from backend.contract.stored import put, rewards_in
from backend.contract.survey import SurveyQuery
from backend.contract.task import Dataset, missing_text, template_columns, unknown_places, untrained_text
from backend.errors import Invalid
from backend.field_errors import FieldError, field_errors
from backend.storage.tables import upload
from backend.uploads import jsonl
from backend.uploads.conversion import NAMED, Missing, note_columns
from backend.uploads.reading import COUNTED_BYTES, holds_odd_chats, read, references
from backend.uploads.store import path_of
from backend.uploads.survey import survey

NAMING = ("prompt_column", "answer_column", "numbers_column", "source_column", "chosen_column", "rejected_column")
"""The fields that name a column."""
_ALIKE = (("prompt_column", "answer_column"), ("prompt_column", "chosen_column"), ("chosen_column", "rejected_column"))


def upload_of(config: RunConfig) -> int | None:
    """The upload that a configuration reads, if any."""
    read = data_of(config)
    if read is None:
        return None
    kind, _, number = read[1].source.partition(":")
    return int(number) if kind == "upload" else None


def resolved(tx: Connection, home: Path, config: RunConfig) -> RunConfig:
    """The configuration with the columns that it does not name, and whose usual names the upload lacks, as the rows show them.

    Raises Invalid with the question that only a person can answer.
    """
    described, upload_id = data_of(config), upload_of(config)
    if described is None or upload_id is None:
        return config
    path, data = described
    columns = tx.execute(select(upload.c.columns).where(upload.c.id == upload_id)).scalar_one_or_none()
    file, usual = path_of(home, upload_id), {getattr(data, name, None) for name in {*NAMING} - data.model_fields_set}
    if columns is None or not file.exists() or usual <= {None, *columns}:
        return config
    found = survey(file, SurveyQuery(use="task" if isinstance(data, Dataset) else "pairs"))
    if found.question is not None:
        raise Invalid(FieldError(f"{path}.prompt_column", found.question))
    written: Json = config.model_dump(mode="json", exclude_unset=True) | {"kind": config.kind}
    for name, value in found.fields.items():
        if name not in data.model_fields_set:
            written = put(written, f"{path}.{name}", value)
    try:
        return RUN_CONFIG.validate_python(written)
    except ValidationError as error:
        raise Invalid(*field_errors(error.errors(include_url=False), written)) from None


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
    columns, template = found["columns"], getattr(data, "template", "")
    wanted = [(name, column) for name in NAMING if (column := getattr(data, name, None)) is not None]
    wanted += [("template", name) for name in template_columns(template, columns)]
    small = found["size_bytes"] <= COUNTED_BYTES  # a run reads larger ones when it begins
    made = tuple(name for _, name in wanted if name not in columns and base_of(name, columns) is not None)
    # an upload from before it was kept is counted anew
    missing: dict[str, Missing] = dict.fromkeys((*columns, *made), (0, []))
    missing |= _missing(file, tuple(columns)) if found["missing"] is None else found["missing"]
    missing |= _missing(file, made) if small and made else {}
    nowhere = found["rows"], list(range(1, min(found["rows"], NAMED) + 1))
    errors = []
    for name, column in wanted:
        count, first = missing.get(column, nowhere)
        if count:
            way = "; leave these rows out of the file, or name another column" if column in made else ""
            errors.append(FieldError(f"{path}.{name}", f"{missing_text(column, count, first)}{way}"))
    for one, other in _ALIKE:
        if (column := getattr(data, one, None)) is not None and column == getattr(data, other, None):
            text = f"{column} is the {one.partition('_')[0]} column, too; choose another"
            errors.append(FieldError(f"{path}.{other}", text))
    if unknown := unknown_places(template, columns):
        places, known = (
            ", ".join(f"{{{name}}}" for name in names) for names in (unknown, dict.fromkeys(["prompt", *columns]))
        )
        what = "is not a column" if len(unknown) == 1 else "are not columns"
        text = f"{places} {what}: nothing would replace it; there are {known:.500}. For braces as they stand, put spaces inside"
        errors.append(FieldError(f"{path}.template", text))
    if not errors and small:
        errors += [*_of_rows(file, path, data), *_of_references(file, path, data, config)]
    if errors:
        raise Invalid(*errors)


def _of_references(file: Path, path: str, data: Dataset | DatasetPairs, config: RunConfig) -> Iterator[FieldError]:
    """References with which no answer can be compared as a reward says."""
    functions = [one for one in rewards_in(config.model_dump(mode="json")) if one[1]["kind"] == "correctness"]
    if not isinstance(data, Dataset) or data.answer_column is None or not functions:
        return
    problem, no_number = references(file, data.answer_column)
    for at, function in functions:
        match = function["match"]
        if data.numbers_column is not None:
            if match != "task":
                text = f"is {match}, and an answer to Countdown is an expression; set it to task"
                yield FieldError(f"{at}.match", text)
        elif problem is not None:
            yield FieldError(f"{path}.answer_column", problem)
        elif match == "numeric" and no_number is not None:
            number, reference = no_number
            text = f"is numeric, and the reference answer of row {number} is not a number: {reference:.100}; set it to task"
            yield FieldError(f"{at}.match", text)


def _of_rows(file: Path, path: str, data: Dataset | DatasetPairs) -> Iterator[FieldError]:
    """What only the rows themselves show: prompts that cannot be asked, and shares of sources without a row to train on."""
    shares = data.shares if isinstance(data, Dataset) else {}
    source_column = data.source_column if isinstance(data, Dataset) else None
    query = SplitQuery(prompt_column=data.prompt_column, held_out=data.held_out, source_column=source_column)
    split, first_chat, problem = read(file, query, tuple(shares))
    for name, view in (("prompt_column", CHAT), ("chosen_column", ANSWER), ("rejected_column", ANSWER)):
        column = getattr(data, name, None)
        if column is not None and holds_odd_chats(file, column):
            text = f"holds chats that no template reads as they stand; name {column}.{view}, which reads them"
            yield FieldError(f"{path}.{name}", text)
            return
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
def _missing(file: Path, names: tuple[str, ...]) -> dict[str, Missing]:
    """As `missing` of an upload has it, of any names; a file's number is never given again."""
    missing: dict[str, Missing] = dict.fromkeys(names, (0, []))
    for number, row in enumerate(jsonl.rows_of(file), 1):
        note_columns(missing, number, {name: row.get(name) for name in names})
    return missing
