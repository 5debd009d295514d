"""An uploaded file becomes JSON lines, in a process of its own: hours of reading, bombs and gigabytes stay out of the backend."""

import errno
import hashlib
import json
import os
import resource
import subprocess
import sys
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backend.contract.base import to_json
from backend.contract.task import is_missing
from backend.errors import Invalid
from backend.field_errors import FieldError
from backend.uploads.compression import unpacked
from backend.uploads.formats import FileFormat, read
from backend.uploads.jsonl import (
    LONGEST_LINE,
    MOST_COLUMNS,
    MOST_ROWS,
    Row,
    refused,
    require_bounds,
    too_long,
    too_many_rows,
    wrong,
)

LIMITS = {resource.RLIMIT_AS: 2**30, resource.RLIMIT_CPU: 3600, resource.RLIMIT_CORE: 0}
TOO_LARGE = (
    "The file takes more memory or time to read than an upload may, or holds a value that no program could read; "
    "save it as CSV or JSON lines, or upload a part of it."
)
NICE = 5
PROGRESS_SECONDS = 0.3
_KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
_ROOT = str(Path(__file__).parents[2])
_MAIN = "import sys; sys.path.insert(0, sys.argv[1]); from backend.uploads.conversion import main; main(*sys.argv[2:])"


Missing = tuple[int, list[int]]
NAMED = 10
"""Rows without a value that are named."""


@dataclass(frozen=True)
class Contents:
    """What a file held: the rows that were kept, their columns, how many of them occur again, and the empty ones, left out.

    `missing` has, by column, the number of rows without a value there and the first of them, counted from 1. `notes` say what was
    skipped or left out, and how it was read unless that is plain.
    """

    file: FileFormat
    rows: int
    columns: list[str]
    duplicates: int
    empty: int
    missing: dict[str, Missing]
    notes: list[str]


def convert(
    source: Path, suffix: str, target: Path, *, most_bytes: int, on_rows: Callable[[int], None] = lambda rows: None
) -> Contents:
    """Write the rows of `source` to `target`; `on_rows` hears now and then how many there are so far.

    Raises Invalid for what cannot be read, or takes more than `most_bytes` as JSON lines; OSError if the disk is full.
    """
    arguments = [_ROOT, str(source.resolve()), suffix, str(target.resolve()), str(most_bytes)]
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}  # no token
    answer: dict[str, Any] = {}
    with subprocess.Popen(
        [sys.executable, "-I", "-W", "ignore", "-c", _MAIN, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd="/",
        env=kept | {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    ) as process:
        try:
            for line in process.stdout or ():
                answer = json.loads(line)
                if "rows_so_far" in answer:
                    on_rows(answer["rows_so_far"])
        except BaseException:
            process.kill()
            raise
    if "invalid" in answer:
        raise Invalid(*(FieldError(**error) for error in answer["invalid"]))
    if "errno" in answer:
        raise OSError(answer["errno"], os.strerror(answer["errno"]))
    if "file" not in answer:  # the kernel ended it, or a library's code in C
        raise refused(TOO_LARGE)
    return Contents(FileFormat(**answer.pop("file")), **answer)


def main(source: str, suffix: str, target: str, most_bytes: str) -> None:
    """Convert, and send how far it is and what came of it, as JSON lines. What libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    os.nice(NICE)  # pages go first
    for what, most in LIMITS.items():
        hard = resource.getrlimit(what)[1]
        with suppress(OSError, ValueError):  # macOS refuses some of them
            resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    latest = time.monotonic()

    def send_progress(rows: int) -> None:
        nonlocal latest
        if time.monotonic() > latest + PROGRESS_SECONDS:
            latest = time.monotonic()
            answers.write(f"{json.dumps({'rows_so_far': rows})}\n")

    try:
        answer = asdict(canonical(Path(source), suffix, Path(target), int(most_bytes), send_progress))
    except Invalid as invalid:
        answer = {"invalid": [asdict(error) for error in invalid.errors]}
    except MemoryError:
        answer = {"invalid": [asdict(FieldError("", TOO_LARGE))]}
    except OSError as error:
        answer = {"errno": error.errno or errno.EIO}
    answers.write(f"{json.dumps(answer)}\n")
    answers.close()


def canonical(source: Path, suffix: str, target: Path, most_bytes: int, on_rows: Callable[[int], None]) -> Contents:
    """As `convert`, in this process; `on_rows` hears of each row."""
    notes: list[str] = []
    file_format, read_rows = read(unpacked(source, target, most_bytes), suffix, notes)
    missing: dict[str, Missing] = {}
    digests = [array("Q") for _ in range(256)]  # by their first byte: few are counted at once
    rows = empty = written = 0
    with target.open("wb") as file:
        for number, row, line in read_rows:
            if rows + empty == MOST_ROWS:
                raise too_many_rows()
            if row is None or all(value is None or value == "" for value in row.values()):
                empty += 1
                continue
            require_bounds(number, row, file_format.unit)
            note_columns(missing, rows + 1, row)
            if len(missing) > MOST_COLUMNS:
                what = f"brings the file to {len(missing):,} columns; an upload may have {MOST_COLUMNS}"
                raise wrong(number, what, file_format.unit)
            line = line or f"{to_json(row)}\n".encode()
            if len(line) > LONGEST_LINE:
                raise too_long(number, file_format.unit)
            written += len(line)
            if written > most_bytes:
                raise refused(f"The file unpacks to more than {most_bytes:,} bytes of rows; upload a part of it.")
            digest = hashlib.blake2b(line, digest_size=8).digest()
            digests[digest[0]].append(int.from_bytes(digest))
            file.write(line)
            rows += 1
            on_rows(rows)
    if not rows:
        raise refused("The file holds no rows, or nothing but the names of columns; add rows below them.")
    without = {name: one for name, one in missing.items() if one[0]}
    duplicates = rows - sum(len(set(part)) for part in digests)
    return Contents(file_format, rows, list(missing), duplicates, empty, without, notes)


def note_columns(missing: dict[str, Missing], number: int, row: Row) -> None:
    """Count, for each column so far and each new one, the rows that lack it; this is row `number` of those that are kept."""
    for name in [name for name in row if name not in missing]:
        missing[name] = number - 1, list(range(1, min(number, NAMED + 1)))
    if len(row) == len(missing) and not any(map(is_missing, row.values())):
        return
    for name, (count, first) in missing.items():
        if is_missing(row.get(name)):
            missing[name] = count + 1, first if len(first) == NAMED else [*first, number]
