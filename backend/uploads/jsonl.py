"""Reading JSONL: one JSON object a line, and errors that name the line."""

import datetime
import decimal
import json
import math
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from backend.contract.base import Json, storable, to_json
from backend.contract.cells import Cells
from backend.contract.task import LONGEST_NAME, as_text
from backend.errors import Invalid
from backend.field_errors import FieldError

Row = dict[str, Json]
NumberedRow = tuple[int, Row | None, bytes | None]
"""The line or the number of a row, the row (None: an empty one), and its line if the file has it as it is to be kept."""

LONGEST_LINE = 4 * 2**20  # bytes; its keys and values take twenty times as many in memory
MOST_COLUMNS = 256
MOST_ROWS = 10_000_000
SHOWN_CHARACTERS = 2000  # of a value in a preview
PREVIEW_CHARACTERS = 2**20  # after which a preview ends


def rows_of(path: Path) -> Iterator[Cells]:
    """The objects of a file, one a line. Raises Invalid, naming the line, for anything else."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield Cells(row_of(number, line))


def require_bounds(number: int, row: Row, unit: str) -> None:
    """Raises Invalid for a name or a value that cannot be kept."""
    if longest := next((name for name in row if len(name) > LONGEST_NAME), None):
        what = f"has a column whose name begins {longest[:20]!r} and has {len(longest):,} letters, not {LONGEST_NAME}"
        raise wrong(number, what, unit)
    for name, value in row.items():
        try:
            if not isinstance(value, str):
                storable(value)
        except ValueError as error:
            raise wrong(number, f"has a value in column {name} that {error}", unit) from None


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


_BEYOND_ASCII = re.compile(r"\w{0,30}[^\x00-\x7f]\w{0,30}")


@lru_cache(maxsize=64)
def word_beyond_ascii(path: Path) -> str | None:
    """The first word, in a name or a value, that has a letter or a sign beyond ASCII; a file's number is never given again."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.isascii():
                row = row_of(number, line)
                texts = (text for name, value in row.items() for text in (name, as_text(value)))
                return next((found[0] for text in texts if (found := _BEYOND_ASCII.search(text))), None)
    return None


def _shown(value: Json) -> Json:
    try:
        storable(value)
    except ValueError as error:  # an earlier version took it
        return f"(a value that {error})"
    text = value if isinstance(value, str) else to_json(value)
    return value if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]} …"


def row_of(number: int, line: bytes) -> Row:
    """The object of a line. Raises Invalid."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise wrong(number, f"is not UTF-8 (byte {error.start + 1}); save the file as UTF-8") from None
    try:
        row = _DECODER.decode(text)
        if "\\u" in text:
            row = json.loads(to_json(row))  # an escape may have brought in half of a surrogate pair
    except json.JSONDecodeError as error:
        raise wrong(number, f"is not valid JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:
        raise wrong(number, f"has a number that cannot be read: {error}") from None
    except RecursionError:
        raise wrong(number, "is nested too deeply") from None
    if not isinstance(row, dict):
        names = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
        kind = names.get(type(row), "a number")
        raise wrong(number, f'is {kind}, not an object; write {{"prompt": …, "answer": …}}')
    return row


# Python writes NaN for what is missing; of infinity require_bounds says what it is
_DECODER = json.JSONDecoder(parse_constant=lambda name: None if name == "NaN" else float(name))


def wrong(number: int, what: str, unit: str = "line") -> Invalid:
    """What is wrong with a line or a row, counted from 1."""
    return Invalid(FieldError(f"{unit} {number}", what))


def too_long(number: int, unit: str = "line") -> Invalid:
    """A line has more bytes than one may have."""
    return wrong(number, f"is longer than {LONGEST_LINE // 2**20} MiB; shorten it, or leave it out", unit)


def too_many_rows() -> Invalid:
    """The file has more rows than one may have."""
    return refused(f"The file has more than {MOST_ROWS:,} rows, which an upload may have; leave some out.")


def refused(why: str) -> Invalid:
    """What is wrong with the whole file."""
    return Invalid(FieldError("", why))


def require_names(names: Sequence[str]) -> None:
    """Raises Invalid for too many columns, or two of one name."""
    if len(names) > MOST_COLUMNS:
        raise refused(f"The file has {len(names):,} columns; an upload may have {MOST_COLUMNS}.")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise refused(f"Two columns are called {twice[:100]}; rename one.")


def plain(number: int, column: str, value: Any, *, of_json: bool = False) -> Any:
    """As JSON has it, and a number with digits that would be lost as a text. Raises Invalid for bytes, of which no prompt is made."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return None if math.isnan(value) else value  # so pandas writes what is missing
        case list() | tuple():
            return [plain(number, column, one, of_json=of_json) for one in value]
        case Mapping():
            return {str(name): plain(number, column, one, of_json=of_json) for name, one in value.items()}
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal() if not value.is_finite():
            raise wrong(number, f"has {value} in column {column}, which JSON does not have; leave the row out", "row")
        case decimal.Decimal():
            if value.as_tuple().exponent == 0:
                return int(value)
            if not of_json:
                return f"{value:f}"  # exact, 2.50 too
            return float(value) if decimal.Decimal(repr(float(value))) == value else str(value)
        case uuid.UUID():
            return str(value)
        case datetime.timedelta():
            return value.total_seconds()
    what = f"has {type(value).__name__} in column {column}, of which no prompt is made; leave the column out"
    raise wrong(number, what, "row")
