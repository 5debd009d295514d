"""Tables of separated values, as spreadsheets, pandas and people write them."""

import csv
import io
import re
from collections.abc import Iterable, Iterator
from itertools import count, islice, zip_longest
from typing import NamedTuple

from backend.uploads.jsonl import LONGEST_LINE, NumberedRow, Row, refused, require_names, wrong

SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}
_SEPARATOR_LINE = re.compile(r'"?sep=([^\w"\r\n])"?[,;|\t]*(?:\r\n?|\n)', re.IGNORECASE)  # Excel's
_NAMES = re.compile(r"(?:[^\W\d][^.?!:\0]{0,39}\0)+")  # as no sentences look
_NUMBER = re.compile(r"[-+]?(?:(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE)
_INDEX = re.compile(r"(?:Unnamed: \d+)?")  # as pandas calls it


class TableLayout(NamedTuple):
    """How a table is written."""

    separator: str
    above: int  # records above the names of the columns
    unnamed: int  # columns at the left that number the rows


def layout_of(text: str, notes: list[str]) -> TableLayout:
    """Of a table that begins so; what is not read of it is said in `notes`."""
    said = _SEPARATOR_LINE.match(text)
    text = text[said.end() :] if said else text
    separator, above = said[1] if said else _separator(text), 0
    records = _records(text, separator)
    widths = list(filter(None, map(_width, records)))
    if widths and (widths[0] == 1 or widths[0] < max(widths)):  # these are not all of the names
        found = [(*_below_titles(_records(text, one)), one) for one in ([separator] if said else SEPARATORS)]
        width, above, better = max(found)
        separator, records = (better, _records(text, better)) if width else (separator, records)
    if skipped := " / ".join(cell.strip() for cells in records[:above] for cell in cells if cell.strip()):
        notes.append(f"Skipped above the table: {skipped:.200}")
    rows, unnamed = list(filter(_width, records[above:])), 0
    for name, *cells in zip_longest(*rows, fillvalue=""):
        is_index = cells and len(set(cells)) == len(cells) and all(map(str.isdecimal, cells))
        if not is_index or not _INDEX.fullmatch(name.strip()) or unnamed + 1 == _width(rows[0]):
            break
        unnamed += 1
    if unnamed:
        which = "the first column" if unnamed == 1 else f"the first {unnamed} columns"
        notes.append(f"Left out: {which}, numbers without a name, as pandas writes its index")
    return TableLayout(separator, above + bool(said), unnamed)


def is_table(text: str) -> bool:
    """Whether the text is clearly one, whatever its file is called: names, and at least two rows of as many cells."""
    records = list(filter(_width, _records(text, _separator(text))))
    return len(records) > 2 and len(set(map(len, records))) == 1 < len(records[0]) and _are_names(records[0])


def _records(text: str, separator: str) -> list[list[str]]:
    """The first 50; none if they cannot be read so."""
    csv.field_size_limit(LONGEST_LINE)
    try:
        return list(islice(csv.reader(io.StringIO(text, newline=""), delimiter=separator), 50))
    except csv.Error:
        return []


def _separator(text: str) -> str:
    """The one that cuts the most rows into as many cells as the first, and those into most."""
    best, most = ",", 0.0
    for separator in SEPARATORS:
        widths = [len(row) for row in _records(text, separator) if row]
        score = (widths[0] - 1) * widths.count(widths[0]) / len(widths) if widths else 0
        if score > most:
            best, most = separator, score
    return best


def _width(cells: list[str]) -> int:
    """How many cells there are up to the last one that holds something."""
    return max((place for place, cell in enumerate(cells, 1) if cell.strip()), default=0)


def _below_titles(records: list[list[str]]) -> tuple[int, int]:
    """How many columns a table has, and how many records lie above it; zeros unless all is clear.

    Titles are one cell, or go on behind a colon, or a comma and a space; below are names, and at least two rows that are as wide.
    """
    width = max(map(_width, records), default=0)
    for above, cells in enumerate(records):
        filled = [cell for cell in cells if cell.strip()]
        if len(filled) == width:
            below = list(filter(_width, records[above + 1 :]))
            is_clear = above > 0 and width > 1 and len(below) > 1 and {len(row) for row in below} == {len(cells)}
            return (width, above) if is_clear and _are_names(filled) else (0, 0)
        if any(cell[0] != " " for cell in filled[1:]) and not filled[0].endswith(":"):
            break
    return 0, 0


def _are_names(cells: list[str]) -> bool:
    return len(set(cells)) == len(cells) and _NAMES.fullmatch("".join(f"{cell}\0" for cell in cells)) is not None


def rows_of(lines: Iterable[str], layout: TableLayout) -> Iterator[NumberedRow]:
    """A row of texts for each record; an empty cell is null. Raises Invalid."""
    csv.field_size_limit(LONGEST_LINE)
    reader = csv.reader(lines, delimiter=layout.separator, strict=True)
    names: list[str] | None = None
    for place in count():
        number = reader.line_num + 1  # a record may have several lines
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise wrong(number, f"cannot be read: {_mistake(error)}") from None
        if cells is None:
            return
        if not any(cell.strip() for cell in cells):
            yield number, None, None
        elif place >= layout.above and names is None:
            names = _names(cells)
        elif names is not None:
            yield number, _row(number, names, cells, layout.unnamed), None


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
    if number := next(filter(_NUMBER.fullmatch, names), None):
        text = f"The first row of a table names its columns, and here {number[:100]} stands there; add a first row of names."
        raise refused(text)
    require_names(names)
    return names


def _row(number: int, names: list[str], cells: list[str], unnamed: int) -> Row:
    if any(cell.strip() for cell in cells[len(names) :]):
        what = f"has {len(cells)} cells, and the first row names {len(names)}"
        raise wrong(number, f"{what}; put a cell that holds the separator into quotation marks")
    if kept := next((cell for cell in cells[:unnamed] if cell and not cell.isdecimal()), None):
        raise wrong(number, f"has {kept[:100]!r} below numbers in a column without a name; name it, or take it out")
    named = zip(names, cells + [""] * len(names), strict=False)
    return {name: cell if cell != "" else None for name, cell in islice(named, unnamed, None)}
