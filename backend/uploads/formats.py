"""Rows from a file as people have it: JSON lines, a JSON document, a table of separated values, or Parquet, recognized by what it holds.

It runs in a process of its own (`conversion.py`): what others wrote may be anything.
"""

import codecs
import csv
import datetime
import decimal
import io
import json
import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO

from backend.uploads.encoding import encoding_of
from backend.uploads.jsonl import (
    LONGEST_LINE,
    MOST_COLUMNS,
    MOST_ROWS,
    Row,
    refused,
    row_of,
    too_long,
    too_many_rows,
    wrong,
)

Format = Literal["jsonl", "json", "csv", "parquet"]
HEAD = 2**20  # bytes that show a format and a separator
BATCH = 32  # rows of a Parquet file at a time: each may have megabytes
EMPTY = "The file is empty; its first row names the columns, or each line is a JSON object."
SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
_PACKED = {
    b"PK\x03\x04": "a zip archive or an Excel file",
    b"\x1f\x8b": "packed with gzip",
    b"BZh": "packed with bzip2",
}
_PACKED |= {
    b"\xfd7zXZ": "packed with xz",
    b"\x28\xb5\x2f\xfd": "packed with zstd",
    b"\xd0\xcf\x11\xe0": "an old Excel file",
}
_PACKED |= {b"%PDF": "a PDF", b"\x89PNG": "an image", b"SQLite format 3": "a database"}


@dataclass(frozen=True)
class FileFormat:
    """What a file turned out to be."""

    format: Format
    encoding: str | None = None  # None: UTF-8, or no text
    separator: str | None = None  # in words

    @property
    def unit(self) -> str:
        """What is counted in it."""
        return "line" if self.format in ("jsonl", "csv") else "row"


NumberedRow = tuple[int, Row | None, bytes | None]
"""The line or the number of a row, the row (None: an empty one), and its line if the file has it as it is to be kept."""


def read(path: Path, suffix: str) -> tuple[FileFormat, Iterator[NumberedRow]]:
    """What the file is, and its rows. Raises Invalid, also while the rows are read."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if not head.strip():
        raise refused(EMPTY)
    if head.startswith(b"PAR1"):
        return FileFormat("parquet"), _parquet(path)
    for magic, what in _PACKED.items():
        if head.startswith(magic):
            raise refused(f"The file is {what}. Save it as CSV, JSON lines or Parquet, unpacked.")
    encoding = encoding_of(path, head)
    text = head.decode(encoding, errors="replace").lstrip("\ufeff")
    if not text.strip():
        raise refused(EMPTY)
    if "\0" in text:
        raise refused("The file is not a text: it has zero bytes. Save it as CSV, JSON lines or Parquet.")
    shown = None if encoding in ("utf-8", "utf-8-sig", "ascii") else encoding
    kind = _kind(text, suffix)
    if kind == "jsonl":
        return FileFormat("jsonl", shown), _json_lines(path, encoding)
    if kind == "json":
        return FileFormat("json", shown), _json_document(path, encoding, text)
    separator = None if kind == "lines" else _separator(text)
    words = None if separator is None else SEPARATORS[separator]
    return FileFormat("csv", shown, words), _table(path, encoding, separator)


def _kind(text: str, suffix: str) -> Literal["jsonl", "json", "lines", "table"]:
    first, _, more = text.lstrip().partition("\n")
    if suffix in (".jsonl", ".ndjson"):
        return "jsonl"
    if suffix in (".csv", ".tsv"):
        return "table"
    if first.startswith("{"):
        row = _object(first)
        if row is None and not more:  # a line that is longer than what was read of the file
            return "json" if suffix == ".json" or _HOLDS_ROWS.match(first) else "jsonl"
        if row is None and (suffix == ".json" or not first.rstrip().endswith("}")):
            return "json"  # that goes on below
        alone = suffix == ".json" and not more.strip()
        return "json" if alone and row is not None and any(map(_is_list_of_objects, row.values())) else "jsonl"
    if suffix == ".json" or (first.startswith("[") and suffix != ".txt"):
        return "json"
    return "lines" if suffix == ".txt" and not any(one in first for one in "\t;|") else "table"


_HOLDS_ROWS = re.compile(r'\{\s*"[^"]*"\s*:\s*\[\s*\{')


def _object(line: str) -> Mapping[str, object] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(one, dict) for one in value)


_BROKEN, _MARK = "groupscope-broken", "\udcff"  # half of a pair, which no encoding gives
codecs.register_error(_BROKEN, lambda error: (_MARK, error.end if isinstance(error, UnicodeDecodeError) else 0))


def _json_lines(path: Path, encoding: str) -> Iterator[NumberedRow]:
    with path.open("rb") as file:
        lines: Iterable[bytes] = iter(lambda: file.readline(LONGEST_LINE + 1), b"")
        if encoding not in ("utf-8", "utf-8-sig"):
            lines = (line.encode() for line in _decoded(path, encoding))
        for number, line in enumerate(lines, 1):
            line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if len(line) > LONGEST_LINE:
                raise too_long(number)
            if not line.strip():
                yield number, None, None
            else:
                yield number, row_of(number, line), line.strip(b"\r\n") + b"\n"


def _decoded(path: Path, encoding: str) -> Iterator[str]:
    """The lines of a text. Raises Invalid if a byte does not belong to the encoding, or a line is too long."""
    with path.open(encoding=encoding, newline="", errors=_BROKEN) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), ""), 1):
            if len(line) > LONGEST_LINE:
                raise too_long(number)
            if _MARK in line:
                name = encoding.removesuffix("-sig").upper()
                raise wrong(number, f"has a byte that is not {name}, as the rest is; save the file as UTF-8")
            yield line.lstrip("\ufeff") if number == 1 else line


def _json_document(path: Path, encoding: str, head: str) -> Iterator[NumberedRow]:
    """The objects of the document's array, or of the one array in its object: {"data": [...]}."""
    import ijson

    opened: BinaryIO | TextIO = path.open("rb") if encoding == "utf-8" else path.open(encoding=encoding)
    prefix = "item" if head.lstrip().startswith("[") else None
    try:
        with opened as file:
            if prefix is None:
                events = ijson.parse(file, buf_size=LONGEST_LINE)
                lists = (at for at, event, _ in events if event == "start_map" and at.endswith(".item"))
                prefix = next(lists, None)
                file.seek(0)
            if prefix is None:
                raise refused('The JSON holds no list of objects; write [{"prompt": …, "answer": …}, …].')
            for number, row in enumerate(ijson.items(file, prefix, buf_size=LONGEST_LINE), 1):
                if not isinstance(row, dict):
                    raise wrong(number, 'is not an object; write {"prompt": …, "answer": …}', "row")
                yield number, {name: _plain(number, name, value, of_json=True) for name, value in row.items()}, None
    except (ijson.JSONError, ValueError) as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        why = " ".join(why.partition("(right here)")[0].split())
        raise refused(f"The file is not valid JSON: {why[:200]}") from None


def _separator(text: str) -> str:
    """The one that cuts the most rows into as many cells as the first, and those into most."""
    csv.field_size_limit(LONGEST_LINE)
    best, most = ",", 0.0
    for separator in SEPARATORS:
        try:
            rows = list(islice(csv.reader(io.StringIO(text, newline=""), delimiter=separator), 50))
        except csv.Error:
            continue
        widths = [len(row) for row in rows if row]
        score = (widths[0] - 1) * widths.count(widths[0]) / len(widths) if widths else 0
        if score > most:
            best, most = separator, score
    return best


def _table(path: Path, encoding: str, separator: str | None) -> Iterator[NumberedRow]:
    """A row of texts for each record; an empty cell is null. Without a separator each line is a prompt."""
    if separator is None:
        for number, line in enumerate(_decoded(path, encoding), 1):
            text = line.strip()
            yield number, {"prompt": text} if text else None, None
        return
    csv.field_size_limit(LONGEST_LINE)
    reader = csv.reader(_decoded(path, encoding), delimiter=separator, strict=True)
    names: list[str] | None = None
    while True:
        number = reader.line_num + 1  # a record may have several lines
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise wrong(number, f"cannot be read: {_mistake(error)}") from None
        if cells is None:
            return
        if not any(cell.strip() for cell in cells):
            yield number, None, None
        elif names is None:
            names = _names(cells)
        else:
            yield number, _row(number, names, cells), None


def _mistake(error: csv.Error) -> str:
    """What is wrong with a record, and what to do."""
    doubled = "put the whole cell into quotation marks, and double those inside"
    if "limit" in str(error):
        return f"a cell has more than {LONGEST_LINE // 2**20} MiB, or a quotation mark opens it that nothing closes"
    if "unexpected end" in str(error):
        return f"a quotation mark opens a cell, and nothing closes it; {doubled}"
    return f"a cell goes on after the quotation mark that closes it; {doubled}"


def _names(cells: list[str]) -> list[str]:
    """The names of the columns; one without a name is called by its place. Raises Invalid for a first row that names none."""
    while not cells[-1].strip():
        cells.pop()
    names = [cell.strip() or f"column {place}" for place, cell in enumerate(cells, 1)]
    if number := next(filter(_is_number, names), None):
        text = f"The first row of a table names its columns, and here {number[:100]} stands there; add a first row of names."
        raise refused(text)
    require_names(names)
    return names


def require_names(names: Sequence[str]) -> None:
    """Raises Invalid for too many columns, or two of one name."""
    if len(names) > MOST_COLUMNS:
        raise refused(f"The file has {len(names):,} columns; an upload may have {MOST_COLUMNS}.")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise refused(f"Two columns are called {twice[:100]}; rename one.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _row(number: int, names: list[str], cells: list[str]) -> Row:
    if any(cell.strip() for cell in cells[len(names) :]):
        what = f"has {len(cells)} cells, and the first row names {len(names)}"
        raise wrong(number, f"{what}; put a cell that holds the separator into quotation marks")
    return {name: cell if cell != "" else None for name, cell in zip(names, cells + [""] * len(names), strict=False)}


def _parquet(path: Path) -> Iterator[NumberedRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, memory_map=False, pre_buffer=False, buffer_size=2**20) as file:
            require_names(file.schema_arrow.names)
            if file.metadata.num_rows > MOST_ROWS:
                raise too_many_rows()
            number = 0
            # 64 bits: double
            kinds = {field.name: field.type for field in file.schema_arrow if "float" in str(field.type)}
            for batch in file.iter_batches(batch_size=BATCH, use_threads=False):
                if batch.nbytes > BATCH * LONGEST_LINE:
                    raise wrong(
                        number + 1, "or one soon after it takes too many bytes; shorten it, or leave it out", "row"
                    )
                for row in batch.to_pylist():
                    number += 1
                    row |= {name: _shortened(row[name], kind) for name, kind in kinds.items()}
                    yield number, {name: _plain(number, name, value) for name, value in row.items()}, None
    except MemoryError:
        raise  # one of Arrow's own, too
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise refused(f"The Parquet file cannot be read: {' '.join(str(error).split())[:200]}") from None


def _shortened(value: Any, kind: Any) -> Any:
    """A value of an Arrow type, each of its numbers of 32 or 16 bits as the shortest that reads back to it: 0.1, not 0.10000000149011612."""
    import pyarrow.types as of

    if value is None:
        return None
    if of.is_float32(kind) or of.is_float16(kind):
        if float(value).is_integer() and abs(value) < 2**53:
            return float(value)
        width, least = ("f", 6) if of.is_float32(kind) else ("e", 3)  # digits that the type always keeps
        exact = struct.pack(width, value)
        rounded = (float(f"{value:.{digits}g}") for digits in range(least, 10))
        return next((one for one in rounded if _packed(width, one) == exact), float(value))
    if of.is_map(kind):
        return [(_shortened(key, kind.key_type), _shortened(one, kind.item_type)) for key, one in value]
    if of.is_struct(kind):
        return {field.name: _shortened(value[field.name], field.type) for field in kind}
    if of.is_dictionary(kind):
        return _shortened(value, kind.value_type)
    return [_shortened(one, kind.value_type) for one in value] if of.is_nested(kind) else value


def _packed(width: str, value: float) -> bytes:
    try:
        return struct.pack(width, value)
    except OverflowError:  # rounded up beyond the largest
        return b""


def _plain(number: int, column: str, value: Any, *, of_json: bool = False) -> Any:
    """As JSON has it, and a number with digits that would be lost as a text. Raises Invalid for bytes, of which no prompt is made."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return None if math.isnan(value) else value  # so pandas writes what is missing
        case list() | tuple():
            return [_plain(number, column, one, of_json=of_json) for one in value]
        case Mapping():
            return {str(name): _plain(number, column, one, of_json=of_json) for name, one in value.items()}
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal():
            if value.as_tuple().exponent == 0:
                return int(value)
            if not of_json:
                return f"{value:f}"  # exact, 2.50 too
            return float(value) if decimal.Decimal(repr(float(value))) == value else str(value)
        case datetime.timedelta():
            return value.total_seconds()
    raise wrong(
        number,
        f"has {type(value).__name__} in column {column}, of which no prompt is made; leave the column out",
        "row",
    )
