"""JSON documents: a list of objects, or a table by columns or by rows, as pandas, the datasets library and people write them."""

import decimal
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from backend.uploads.jsonl import LONGEST_LINE, NumberedRow, plain, refused, require_names, wrong

Document = Mapping[str, Any]
LARGEST = 64 * 2**20  # bytes of a document that is read at once; of a larger one, a list is
INDEX = "Left out: the index, which pandas writes beside the rows"
NO_ROWS = 'The JSON holds no list of objects; write [{"prompt": …, "answer": …}, …], or JSON lines.'
UNCLEAR = "It is not clear which of the names in the JSON are columns, and which are rows; save it as JSON lines."
OF_A_FOLDER = "The file describes a saved data set, and holds no rows; upload the .arrow files beside it."
TURNS = ({"role", "content"}, {"from", "value"})  # of chats
_BEGINNING = re.compile(r"\S")
_DECODER = json.JSONDecoder(
    parse_float=decimal.Decimal, parse_constant=lambda name: None if name == "NaN" else decimal.Decimal(name)
)


def rows_of(path: Path, encoding: str, notes: list[str], *, is_line: bool) -> Iterator[NumberedRow] | None:
    """The rows of a JSON document; None if it is an object that may be a row itself, as it more likely is if it `is_line`.

    How they were found, unless that is plain, is said in `notes`. Raises Invalid, also while they are read.
    """
    documents = _loaded(path, encoding)
    if documents is None:
        return _streamed(path, encoding, notes)
    first = documents[0]
    if len(documents) > 1 or not isinstance(first, dict):
        return _numbered(first if isinstance(first, list) else documents)
    rows = _rows(first, notes, is_line=is_line)
    if rows is not None:
        return _numbered(rows)
    nested = any(isinstance(value, (list, dict)) for value in first.values())
    if (nested and not is_line) or (first and all(map(str.isdecimal, first))):
        raise refused(UNCLEAR)
    notes += ["The file was read as one row, with lists or objects in it"] if nested else []
    return None


def _loaded(path: Path, encoding: str) -> list[Any] | None:
    """The documents of a file, one behind the other; None if they can be read row by row, or only so. Raises Invalid."""
    if path.stat().st_size > LARGEST:
        return None
    try:
        text, at, documents = path.read_text(encoding), 0, list[Any]()
        if text[:99].lstrip().startswith("[") and "NaN" not in text and "Infinity" not in text:
            return None  # Python alone reads these; a list needs no memory
        while found := _BEGINNING.search(text, at):
            document, at = _DECODER.raw_decode(text, found.start())
            documents.append(document)
    except json.JSONDecodeError as error:
        raise refused(f"The file is not valid JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except (MemoryError, RecursionError, ValueError):
        return None
    return documents


def _rows(document: Document, notes: list[str], *, is_line: bool) -> Iterable[object] | None:
    match document:
        case {"_data_files": _, "_fingerprint": _}:
            raise refused(OF_A_FOLDER)
        case {"splits": [str(), *_], **more} if not more:
            raise refused(OF_A_FOLDER)
        case {"columns": list(names), "data": [list(), *_] as rows, **more} if not (is_line and {*more} - {"index"}):
            notes += [INDEX if list(more) == ["index"] else f"Left out: {', '.join(more):.200}"] if more else []
            return _named([".".join(map(str, one)) if isinstance(one, list) else str(one) for one in names], rows)
        case {"schema": {"fields": _, "pandas_version": _, **more}, "data": [dict(), *_] as rows}:
            index = {"index"} if more.get("primaryKey") == ["index"] else set[str]()
            notes += [INDEX] if index else []
            return ({name: row[name] for name in row if name not in index} for row in rows)
    kinds, tables = {type(value) for value in document.values()}, dict(_tables(document))
    found: Iterable[object] | None = None
    if kinds == {dict}:
        found = _of_objects(document, tables, notes, is_line=is_line)
    elif kinds == {list}:
        # lists are columns, unless they hold rows, or the turns of chats
        (at, values), *further = document.items()
        shorter = next(((name, other) for name, other in further if len(other) != len(values)), None)
        chats = any(_holds_objects(one) and name not in tables for name, one in document.items())
        in_doubt = shorter or len(values) < 2
        may_be = not (tables and in_doubt) and not (is_line and (chats or in_doubt))
        if may_be and not all(map(_holds_objects, document.values())):
            if shorter:
                what = f"{at:.60} has {len(values):,} and {shorter[0]:.60} has {len(shorter[1]):,}"
                raise refused(f"The lists in the JSON do not have equally many values: {what}; save it as JSON lines.")
            found = _named(list(document), zip(*document.values(), strict=True))
    if found is not None or not tables or (is_line and str in kinds):
        return found
    first, *others = tables
    if left := [*others, *(name for name in document if name not in tables and not first.startswith(f"{name}."))]:
        notes.append(f"The rows are those of the list {first:.100}; left out: {', '.join(left):.200}")
    return tables[first]


def _tables(value: Document, place: str = "") -> Iterator[tuple[str, list[Any]]]:
    """The lists of objects that are in no other list, with their places; a chat is none."""
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _tables(inner, f"{place}{name}.")
        elif _holds_objects(inner) and not any(one <= inner[0].keys() for one in TURNS):
            yield f"{place}{name}", inner


def _holds_objects(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _of_objects(document: Document, tables: Document, notes: list[str], *, is_line: bool) -> Iterable[object] | None:
    """Pandas writes an object for each column, with the index as names; with `orient="index"`, or by hand, one for each row."""
    inner, widest = list(document.values()), max(map(len, document.values()))
    alike = len(set(map(frozenset, inner))) == 1
    by_column = all(one and all(map(str.isdecimal, one)) for one in inner)
    by_row = not by_column and all(map(str.isdecimal, document))
    if not by_column and not by_row:  # an index of words
        has_cells = all(any(not isinstance(cell, (list, dict)) for cell in one.values()) for one in inner)
        if is_line or not has_cells or any(len(table) > len(document) for table in tables.values()):
            return None
        by_row, by_column = len(document) > widest, alike and widest > len(document)
    if by_row:
        notes.append(f"Each name in the JSON stands for a row; these were left out: {next(iter(document)):.100} …")
        return inner
    if alike and by_column:
        notes.append(INDEX)
        return ({name: column[row] for name, column in document.items()} for row in inner[0])
    if alike or by_column:
        raise refused(UNCLEAR)
    return None


def _named(names: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[object]:
    require_names(names)
    for number, cells in enumerate(rows, 1):
        if not isinstance(cells, (list, tuple)) or len(cells) != len(names):
            raise wrong(number, f"is not a list of {len(names)} cells, as many as there are columns", "row")
        yield dict(zip(names, cells, strict=True))


def _numbered(rows: Iterable[object]) -> Iterator[NumberedRow]:
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            how = ', with pandas by to_json(path, orient="records")' if isinstance(row, list) else ""
            raise wrong(number, f'is not an object; write {{"prompt": …, "answer": …}}{how}', "row")
        yield number, {name: plain(number, name, value, of_json=True) for name, value in row.items()}, None


def _streamed(path: Path, encoding: str, notes: list[str]) -> Iterator[NumberedRow]:
    """The objects of a list, or of the first list in a large object, one by one. Raises Invalid."""
    import ijson

    opened: BinaryIO | TextIO = path.open("rb") if encoding == "utf-8" else path.open(encoding=encoding)
    try:
        with opened as file:
            events = ijson.parse(file, buf_size=LONGEST_LINE)
            is_list = next(events)[1] == "start_array"
            lists = (at for at, event, _ in events if event == "start_map" and at.endswith(".item"))
            prefix = "item" if is_list else next(lists, "")
            file.seek(0)
            if not prefix or any(part == "item" or part.isdecimal() for part in prefix.split(".")[:-1]):
                raise refused(f"{NO_ROWS} Other layouts may have {LARGEST // 2**20} MiB.")
            found = f"The rows are those of the list {prefix.removesuffix('.item'):.100}, the first in the JSON"
            notes += [] if is_list else [found]
            yield from _numbered(ijson.items(file, prefix, buf_size=LONGEST_LINE))
    except (ijson.JSONError, ValueError) as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        why = " ".join(why.partition("(right here)")[0].split())
        raise refused(f"The file is not valid JSON: {why[:200]}") from None
