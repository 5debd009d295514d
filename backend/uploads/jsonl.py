"""Reading JSONL: one JSON object a line, and errors that name the line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from backend.contract.base import Json
from backend.errors import Invalid
from backend.field_errors import FieldError
from backend.storage.database import to_json

Row = dict[str, Json]


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
    """Count rows and collect columns, in the order in which they appear. Raises Invalid for a file that is no JSONL."""
    columns: dict[str, None] = {}
    rows = 0
    for row in rows_of(path):
        rows += 1
        columns.update(dict.fromkeys(row))
    if rows == 0:
        raise Invalid(FieldError("", "The file is empty; put one JSON object on each line."))
    return Contents(rows, list(columns))


def _row(number: int, line: bytes) -> Row:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _wrong(number, f"is no UTF-8 (byte {error.start + 1}); save the file as UTF-8") from None
    try:
        row = json.loads(text, parse_constant=_no_constant)
        if "\\u" in text:
            row = json.loads(to_json(row))  # an escape may have brought in half of a surrogate pair
    except json.JSONDecodeError as error:
        raise _wrong(number, f"is no JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:
        raise _wrong(number, f"has a number that cannot be read: {error}") from None
    except RecursionError:
        raise _wrong(number, "is nested too deeply") from None
    if not isinstance(row, dict):
        raise _wrong(number, f'is {_kind(row)}, not an object; write {{"prompt": …, "answer": …}}')
    return row


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _kind(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _wrong(number: int, what: str) -> Invalid:
    return Invalid(FieldError(f"line {number}", what))
