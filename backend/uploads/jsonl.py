"""Reading JSONL: one JSON object a line, and errors that name the line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NoReturn

from backend.contract.base import Json, storable
from backend.errors import Invalid
from backend.field_errors import FieldError
from backend.storage.database import to_json

Row = dict[str, Json]

LONGEST_LINE = 4 * 2**20  # bytes; its keys and values take twenty times as many in memory
LONGEST_NAME = 200
MOST_COLUMNS = 256
SHOWN_CHARACTERS = 2000  # of a value in a preview
PREVIEW_CHARACTERS = 2**20  # after which a preview ends


@dataclass(frozen=True)
class Contents:
    """What a file holds."""

    rows: int
    columns: list[str]


def rows_of(path: Path) -> Iterator[Row]:
    """The objects of a file, one a line. Raises Invalid, naming the line, for anything else."""
    with path.open("rb") as file:
        empty = 0
        for number, line in enumerate(file, 1):
            if not line.strip():
                empty = empty or number
                continue
            if empty:
                raise _wrong(empty, "is empty; remove it")
            yield _row(number, line)


def contents(path: Path) -> Contents:
    """Count rows and collect columns, in the order in which they appear. Raises Invalid for a file that is not JSONL.

    Also for one with a line, or columns, beyond the bounds: everybody who looks at the upload would wait for all of it.
    """
    _require_short_lines(path)
    columns: dict[str, None] = {}
    rows = 0
    for row in rows_of(path):
        rows += 1
        _require_columns(rows, row)
        columns.update(dict.fromkeys(row))
        if len(columns) > MOST_COLUMNS:
            raise _wrong(rows, f"brings the file to {len(columns):,} columns; an upload may have {MOST_COLUMNS}")
    if rows == 0:
        raise Invalid(FieldError("", "The file is empty; put one JSON object on each line."))
    return Contents(rows, list(columns))


def _require_short_lines(path: Path) -> None:
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), 1):
            if len(line) > LONGEST_LINE:
                raise _wrong(number, f"is longer than {LONGEST_LINE // 2**20} MiB; shorten it, or leave it out")


def _require_columns(number: int, row: Row) -> None:
    if longest := next((name for name in row if len(name) > LONGEST_NAME), None):
        what = f"has a column whose name begins {longest[:20]!r} and has {len(longest):,} letters, not {LONGEST_NAME}"
        raise _wrong(number, what)
    for name, value in row.items():
        try:
            storable(value)
        except ValueError as error:
            raise _wrong(number, f"has a value in column {name} that {error}") from None


def preview(path: Path, rows: int) -> list[Row]:
    """The first rows, as far as they are short in all; of a long value its beginning."""
    shown: list[Row] = []
    size = 0
    for row in islice(rows_of(path), rows):
        shown.append({name[:LONGEST_NAME]: _shown(value) for name, value in islice(row.items(), MOST_COLUMNS)})
        size += len(to_json(shown[-1]))
        if size > PREVIEW_CHARACTERS:
            break
    return shown


def _shown(value: Json) -> Json:
    try:
        storable(value)
    except ValueError as error:  # an earlier version took it
        return f"(a value that {error})"
    text = value if isinstance(value, str) else to_json(value)
    return value if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} …"


def _row(number: int, line: bytes) -> Row:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _wrong(number, f"is not UTF-8 (byte {error.start + 1}); save the file as UTF-8") from None
    try:
        row = json.loads(text, parse_constant=_no_constant)
        if "\\u" in text:
            row = json.loads(to_json(row))  # an escape may have brought in half of a surrogate pair
    except json.JSONDecodeError as error:
        raise _wrong(number, f"is not valid JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:
        raise _wrong(number, f"has a number that cannot be read: {error}") from None
    except RecursionError:
        raise _wrong(number, "is nested too deeply") from None
    if not isinstance(row, dict):
        names = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
        kind = names.get(type(row), "a number")
        raise _wrong(number, f'is {kind}, not an object; write {{"prompt": …, "answer": …}}')
    return row


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _wrong(number: int, what: str) -> Invalid:
    return Invalid(FieldError(f"line {number}", what))
