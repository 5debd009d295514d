"""Rows from a file as people have it, recognized by what it holds: JSON lines, JSON, separated values, Parquet, Arrow.

It runs in a process of its own (`conversion.py`): what others wrote may be anything.
"""

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from backend.contract.base import to_json
from backend.uploads import arrow, documents, separated
from backend.uploads.arrow import ARROW_FILE, ARROW_STREAM, PARQUET
from backend.uploads.compression import CODECS
from backend.uploads.documents import NO_ROWS
from backend.uploads.encoding import encoding_of
from backend.uploads.jsonl import LONGEST_LINE, NumberedRow, refused, row_of, too_long, wrong

Format = Literal["jsonl", "json", "csv", "parquet", "arrow"]
KEPT = ".kept"
"""Instead of a file's ending: JSON lines of our own, each of which is a row whatever it looks like."""
JSON_LINES, PLAIN = (".jsonl", ".ndjson"), (".csv", ".tsv", ".txt")
HEAD = 2**20  # bytes that show a format and a separator
EMPTY = "The file is empty; its first row names the columns, or each line is a JSON object."
_PACKED = {
    b"PK\x03\x04": "a zip archive or an Excel file",
    b"\xd0\xcf\x11\xe0": "an old Excel file",
    b"FEA1": "an old Feather file",
}
_PACKED |= {magic: f"packed with {codec} twice" for magic, codec in CODECS.items()}
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


def read(path: Path, suffix: str, notes: list[str]) -> tuple[FileFormat, Iterator[NumberedRow]]:
    """What the file is, and its rows. The `notes` get what it has beside them, and how it is read unless that is plain.

    Raises Invalid, also while the rows are read, and so are notes added.
    """
    with path.open("rb") as file:
        head = file.read(HEAD)
        if b"\n" not in head.lstrip():  # then its first line may be all of it
            head += file.readline(LONGEST_LINE)
    if not head.strip():
        raise refused(EMPTY)
    if head.startswith((PARQUET, ARROW_FILE, ARROW_STREAM)):
        return FileFormat("parquet" if head.startswith(PARQUET) else "arrow"), arrow.rows_of(path, head, notes)
    found = "a tar archive" if head[257:262] == b"ustar" else None
    if found := found or next((what for magic, what in _PACKED.items() if head.startswith(magic)), None):
        raise refused(f"The file is {found}. Save it as CSV, JSON lines or Parquet, unpacked.")
    encoding = encoding_of(path, head)
    text = head.decode(encoding, errors="replace").lstrip("\ufeff")
    if not text.strip():
        raise refused(EMPTY)
    if "\0" in text:
        raise refused("The file is not a text: it has zero bytes. Save it as CSV, JSON lines or Parquet.")
    shown = None if encoding in ("utf-8", "utf-8-sig", "ascii") else encoding
    kind = _kind(text, suffix)
    if kind == "json":
        is_line = not text.strip().partition("\n")[2]
        rows = documents.rows_of(path, encoding, notes, is_line=is_line and suffix in JSON_LINES)
        if rows is not None:
            return FileFormat("json", shown), rows
        if not is_line:
            raise refused(NO_ROWS)
    if kind == "lines":
        lines = enumerate(_decoded(path, encoding), 1)
        prompts = ((number, line.strip()) for number, line in lines)
        return FileFormat("csv", shown), ((at, {"prompt": text} if text else None, None) for at, text in prompts)
    if kind != "table":
        return FileFormat("jsonl", shown), _json_lines(path, encoding)
    layout = separated.layout_of(text, notes)
    words = separated.SEPARATORS.get(layout.separator, layout.separator)
    return FileFormat("csv", shown, words), separated.rows_of(_decoded(path, encoding), layout)


def _kind(text: str, suffix: str) -> Literal["jsonl", "json", "lines", "table"]:
    """What is in a text. Its file's ending counts only where that is not clear."""
    text = text.lstrip()
    first, _, more = text.partition("\n")
    if suffix == KEPT:
        return "jsonl"
    if text[0] in "{[" and (suffix not in PLAIN or _ROWS.match(text)):
        end = None  # where the line stops being JSON
        try:
            json.loads(first)
        except (ValueError, RecursionError) as error:
            end = getattr(error, "pos", -1)
        if end is None and text[0] == "{":
            return "jsonl" if more.strip() else "json"
        goes_on = end == len(first.rstrip()) or (not more and len(first) > LONGEST_LINE)
        if text[0] == "[" or suffix == ".json" or goes_on:
            return "json"
        if suffix not in PLAIN:
            return "jsonl"
    if suffix in (".json", *JSON_LINES) and not separated.is_table(text):
        return "json" if suffix == ".json" else "jsonl"
    is_lines = suffix == ".txt" and not any(one in first for one in "\t;|") and not separated.is_table(text)
    return "lines" if is_lines else "table"


_ROWS = re.compile(r'(?:\[\s*)?\{\s*"(?:[^"\\]|\\.)*"\s*:')


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
                continue
            row = row_of(number, line)
            has_nan = b"NaN" in line and line.count(b"NaN") != to_json(row).count("NaN")
            yield number, row, None if has_nan else line.strip(b"\r\n") + b"\n"


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
