"""An uploaded file becomes JSON lines, in a process of its own: hours of reading, bombs and gigabytes stay out of the backend."""

import hashlib
import json
import resource
import subprocess
import sys
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backend.errors import Invalid
from backend.field_errors import FieldError
from backend.storage.database import to_json
from backend.uploads.formats import Found, read
from backend.uploads.jsonl import LONGEST_LINE, MOST_COLUMNS, Row, refused, require_bounds, wrong

MOST_ROWS = 10_000_000
MOST_BYTES = 16 * 2**30
MEMORY_BYTES = 2 * 2**30
TELL_SECONDS = 0.3
_ROOT = str(Path(__file__).parents[2])
_MAIN = "import sys; sys.path.insert(0, sys.argv[1]); from backend.uploads.conversion import main; main(*sys.argv[2:])"


Missing = tuple[int, list[int]]
NAMED = 10
"""Rows without a value that are named."""


@dataclass(frozen=True)
class Contents:
    """What a file held: the rows that were kept, their columns, how many of them occur again, and the empty ones, left out.

    `missing` has, by column, the number of rows without a value there and the first of them, counted from 1.
    """

    found: Found
    rows: int
    columns: list[str]
    duplicates: int
    empty: int
    missing: dict[str, Missing]


def convert(source: Path, name: str, target: Path, on_rows: Callable[[int], None] = lambda rows: None) -> Contents:
    """Write the rows of `source` to `target`; `on_rows` hears now and then how many there are so far. Raises Invalid."""
    command = [
        sys.executable,
        "-I",
        "-W",
        "ignore",
        "-c",
        _MAIN,
        _ROOT,
        str(source.resolve()),
        name,
        str(target.resolve()),
    ]
    told: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd="/") as process:
        try:
            for line in process.stdout or ():
                told = json.loads(line)
                if "rows_so_far" in told:
                    on_rows(told["rows_so_far"])
        except BaseException:
            process.kill()
            raise
    if "invalid" in told:
        raise Invalid(*(FieldError(**error) for error in told["invalid"]))
    if "found" not in told:
        raise refused("The file cannot be read within the bounds of memory; split it, or save it as JSON lines.")
    return Contents(Found(**told.pop("found")), **told)


def main(source: str, name: str, target: str) -> None:
    """Convert, and tell how it went in JSON lines."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
    told = time.monotonic()

    def tell(rows: int) -> None:
        nonlocal told
        if time.monotonic() > told + TELL_SECONDS:
            told = time.monotonic()
            _tell({"rows_so_far": rows})

    try:
        answer = asdict(canonical(Path(source), name, Path(target), tell))
    except Invalid as invalid:
        answer = {"invalid": [asdict(error) for error in invalid.errors]}
    _tell(answer)


def _tell(message: object) -> None:
    sys.stdout.write(f"{json.dumps(message)}\n")
    sys.stdout.flush()


def canonical(source: Path, name: str, target: Path, on_rows: Callable[[int], None]) -> Contents:
    """The same, in this process."""
    found, rows = read(source, name)
    missing: dict[str, tuple[int, list[int]]] = {}
    digests = array("Q")
    empty = 0
    with target.open("wb") as file:
        for number, row, line in rows:
            if row is None or all(value is None or value == "" for value in row.values()):
                empty += 1
                continue
            require_bounds(number, row)
            note_columns(missing, len(digests) + 1, row)
            if len(missing) > MOST_COLUMNS:
                raise wrong(number, f"brings the file to {len(missing):,} columns; an upload may have {MOST_COLUMNS}")
            if len(digests) == MOST_ROWS:
                raise refused(f"The file has more than {MOST_ROWS:,} rows, which an upload may have; leave some out.")
            line = line or f"{to_json(row)}\n".encode()
            if len(line) > LONGEST_LINE:
                raise wrong(number, f"is longer than {LONGEST_LINE // 2**20} MiB; shorten it, or leave it out")
            digests.append(int.from_bytes(hashlib.blake2b(line, digest_size=8).digest()))
            file.write(line)
            on_rows(len(digests))
    if not digests:
        raise refused(
            "The file holds no row; below the names of its columns there must be one, or an object on a line."
        )
    without = {name: one for name, one in missing.items() if one[0]}
    return Contents(found, len(digests), list(missing), len(digests) - _distinct(digests), empty, without)


def note_columns(missing: dict[str, Missing], number: int, row: Row) -> None:
    """Count, for each column so far and each new one, the rows that lack it; this is row `number` of those that are kept."""
    for name in [name for name in row if name not in missing]:
        missing[name] = number - 1, list(range(1, min(number, NAMED + 1)))
    if len(row) == len(missing) and None not in row.values():
        return
    for name, (count, first) in missing.items():
        if row.get(name) is None:
            missing[name] = count + 1, first if len(first) == NAMED else [*first, number]


def _distinct(digests: "array[int]") -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    return int(
        pc.count_distinct(pa.Array.from_buffers(pa.uint64(), len(digests), [None, pa.py_buffer(digests)])).as_py()
    )
