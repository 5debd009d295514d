"""Rows from a file as people have it: JSON lines, a JSON document, a table of separated values, or Parquet; told by what it holds.

It runs in a process of its own (`conversion.py`): what others wrote may be anything.
"""

import codecs
import csv
import datetime
import decimal
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from backend.errors import Invalid
from backend.uploads.jsonl import LONGEST_LINE, MOST_COLUMNS, Row, refused, row_of, wrong

Format = Literal["jsonl", "json", "csv", "parquet"]
HEAD = 2**20  # bytes from which a format and a separator are told
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
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}
_MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


@dataclass(frozen=True)
class Found:
    """What a file turned out to be."""

    format: Format
    encoding: str | None = None  # None: UTF-8, or no text
    separator: str | None = None  # in words


def read(path: Path, name: str) -> tuple[Found, Iterator[tuple[int, Row | None, bytes | None]]]:
    """What the file is, and its rows: the line or the number of each, the row (None: an empty one), and its line where the file
    has it as it is to be kept. Raises Invalid, also while the rows are read.
    """
    with path.open("rb") as file:
        head = file.read(HEAD)
    if not head.strip():
        raise refused("The file is empty; its first row names the columns, or each line is a JSON object.")
    if head.startswith(b"PAR1"):
        return Found("parquet"), _parquet(path)
    for magic, what in _PACKED.items():
        if head.startswith(magic):
            raise refused(f"The file is {what}. Save it as CSV, JSON lines or Parquet, unpacked.")
    encoding = _encoding(path, head)
    text = head.decode(encoding, errors="replace").lstrip("\ufeff")
    shown = None if encoding in ("utf-8", "utf-8-sig", "ascii") else encoding
    kind = _kind(text, Path(name).suffix.lower())
    if kind == "jsonl":
        return Found("jsonl", shown), _json_lines(path, encoding)
    if kind == "json":
        return Found("json", shown), _json_document(path, encoding, text)
    separator = None if kind == "lines" else _separator(text)
    words = None if separator is None else SEPARATORS[separator]
    return Found("csv", shown, words), _table(path, encoding, separator)


def _encoding(path: Path, head: bytes) -> str:
    """UTF-8 where the whole file is; else what its byte order mark says, or what its bytes look like."""
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return "utf-8-sig" if encoding == "utf-8" else encoding
    decoder, at = codecs.getincrementaldecoder("utf-8")(), 0
    with path.open("rb") as file:
        while chunk := file.read(HEAD):
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError:
                break
            at += len(chunk)
        else:
            return "utf-8"
        file.seek(max(0, at - 2**16))
        sample = head[: 2**16] + file.read(2**18)
    if sample.count(0) > len(sample) // 5:  # half of the bytes of English in UTF-16
        even, odd = sample[::2].count(0), sample[1::2].count(0)
        return "utf-16-be" if even > odd else "utf-16-le"
    from charset_normalizer import from_bytes

    best = from_bytes(sample).best()
    usual = sample.decode("cp1252", errors="replace")  # of several that read it alike, what Windows writes in the West
    return best.encoding if best is not None and sample.decode(best.encoding, errors="replace") != usual else "cp1252"


def _kind(text: str, suffix: str) -> Literal["jsonl", "json", "lines", "table"]:
    if suffix in (".jsonl", ".ndjson"):
        return "jsonl"
    start = text.lstrip()
    if start.startswith("[") and suffix not in (".csv", ".tsv", ".txt"):
        return "json"
    if start.startswith("{") and suffix not in (".csv", ".tsv", ".txt"):
        first, _, more = start.partition("\n")
        alone = suffix == ".json" and not more.strip()
        return "json" if first.strip() == "{" or (alone and not _is_row(first)) else "jsonl"
    if suffix == ".json":
        return "json"
    return "lines" if suffix == ".txt" and not any(one in text.partition("\n")[0] for one in "\t;|") else "table"


def _is_row(text: str) -> bool:
    """Whether it is an object, and none that holds a list of them."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    lists = [one for one in value.values() if isinstance(one, list)] if isinstance(value, dict) else []
    return not any(isinstance(one, dict) for found in lists for one in found)


def _text(path: Path, encoding: str) -> io.TextIOWrapper:
    return path.open(
        encoding=encoding, newline=""
    )  # the caller closes it by reading to its end, in a process that ends


def _json_lines(path: Path, encoding: str) -> Iterator[tuple[int, Row | None, bytes | None]]:
    with path.open("rb") as file:
        lines: Iterable[bytes] = iter(lambda: file.readline(LONGEST_LINE + 1), b"")
        if encoding not in ("utf-8", "utf-8-sig"):
            lines = (line.encode() for line in _decoded(path, encoding))
        for number, line in enumerate(lines, 1):
            line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            if len(line) > LONGEST_LINE:
                raise wrong(number, f"is longer than {LONGEST_LINE // 2**20} MiB; shorten it, or leave it out")
            if not line.strip():
                yield number, None, None
            else:
                yield number, row_of(number, line), line.strip(b"\r\n") + b"\n"


def _decoded(path: Path, encoding: str) -> Iterator[str]:
    """The lines of a text. Raises Invalid where a byte is none of the encoding."""
    number = 0
    try:
        with _text(path, encoding) as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), ""), 1):
                yield line.lstrip("\ufeff") if number == 1 else line
    except UnicodeError as error:
        raise wrong(
            number + 1, f"is not {encoding}, as the lines before it are ({error}); save the file as UTF-8"
        ) from None


def _json_document(path: Path, encoding: str, head: str) -> Iterator[tuple[int, Row | None, bytes | None]]:
    """The objects of the document's array, or of the one array in its object: {"data": [...]}."""
    import ijson

    opened = path.open("rb") if encoding == "utf-8" else codecs.EncodedFile(path.open("rb"), "utf-8", encoding)
    prefix = "item" if head.lstrip().startswith("[") else None
    try:
        with opened as file:
            if prefix is None:
                events = ijson.parse(file)
                prefix = next(
                    (f"{at}.item" for at, event, _ in events if event == "start_array" and "." not in at), None
                )
                file.seek(0)
            if prefix is None:
                raise refused('The JSON holds no list of objects; write [{"prompt": …, "answer": …}, …].')
            for number, row in enumerate(ijson.items(file, prefix, use_float=True), 1):
                if not isinstance(row, dict):
                    raise wrong(number, 'is not an object; write {"prompt": …, "answer": …}', "row")
                yield number, row, None
    except (ijson.JSONError, UnicodeError, RecursionError, ValueError) as error:
        if isinstance(error, Invalid):
            raise
        raise refused(f"The file is not valid JSON: {' '.join(str(error).split())[:200]}") from None


def _separator(text: str) -> str:
    """The one that cuts the first rows into the same number of cells, and into most."""
    best, most = ",", 0
    for separator in SEPARATORS:
        rows = islice(csv.reader(io.StringIO(text, newline=""), delimiter=separator), 50)
        try:
            widths = Counter(len(row) for row in rows if row)
        except csv.Error:
            continue
        width, count = widths.most_common(1)[0]
        if width > 1 and (score := (width - 1) * count / widths.total() ** 0.5) > most:
            best, most = separator, score  # type: ignore[assignment]
    return best


def _table(path: Path, encoding: str, separator: str | None) -> Iterator[tuple[int, Row | None, bytes | None]]:
    """A row of texts for each record; an empty cell is null. Without a separator each line is a prompt."""
    csv.field_size_limit(LONGEST_LINE)
    if separator is None:
        for number, line in enumerate(_decoded(path, encoding), 1):
            text = line.strip()
            yield number, {"prompt": text} if text else None, None
        return
    reader = csv.reader(_decoded(path, encoding), delimiter=separator, strict=True)
    names: list[str] | None = None
    try:
        for cells in reader:
            number = reader.line_num
            if not any(cell.strip() for cell in cells):
                yield number, None, None
            elif names is None:
                names = _names(cells)
            else:
                yield number, _row(number, names, cells), None
    except csv.Error as error:
        why = f"a cell there is longer than {LONGEST_LINE // 2**20} MiB" if "limit" in str(error) else str(error)
        raise wrong(
            reader.line_num,
            f"cannot be read: {why}. A quotation mark that opens a cell must be closed, and doubled inside",
        ) from None


def _names(cells: list[str]) -> list[str]:
    """The names of the columns. Raises Invalid for a first row that names none."""
    names = [cell.strip() for cell in cells]
    while names and not names[-1]:
        names.pop()
    if len(names) > MOST_COLUMNS:
        raise refused(f"The file has {len(names):,} columns; an upload may have {MOST_COLUMNS}.")
    for place, name in enumerate(names, 1):
        if not name:
            raise refused(f"Column {place} has no name; the first row of a table names its columns.")
        if _is_number(name):
            raise refused(
                f"The first row of a table names its columns, and here {name} stands there; add a first row of names."
            )
        if names.count(name) > 1:
            raise refused(f"Two columns are called {name[:100]}; rename one.")
    return names


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


def _parquet(path: Path) -> Iterator[tuple[int, Row | None, bytes | None]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, memory_map=False, pre_buffer=False) as file:
            names = file.schema_arrow.names
            if len(names) > MOST_COLUMNS:
                raise refused(f"The file has {len(names):,} columns; an upload may have {MOST_COLUMNS}.")
            number = 0
            for batch in file.iter_batches(batch_size=256, use_threads=False):
                for row in batch.to_pylist():
                    number += 1
                    yield number, {name: _plain(number, name, value) for name, value in row.items()}, None
    except (pa.ArrowException, OSError, MemoryError, UnicodeError) as error:
        raise refused(f"The Parquet file cannot be read: {' '.join(str(error).split())[:200]}") from None


def _plain(number: int, column: str, value: Any) -> Any:
    """As JSON has it. Raises Invalid for bytes, of which no prompt is made."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_plain(number, column, one) for one in value]
        case Mapping():
            return {str(name): _plain(number, column, one) for name, one in value.items()}
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime.timedelta():
            return value.total_seconds()
    raise wrong(
        number,
        f"has {type(value).__name__} in column {column}, of which no prompt is made; leave the column out",
        "row",
    )
