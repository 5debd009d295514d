"""How fast are large files taken, and how large does the backend become? A file of JSON lines and one of comma-separated values.

    python benchmarks/uploads.py                               1 GB of JSON lines and 200 MB of CSV (make bench-uploads): minutes
    python benchmarks/uploads.py --write                       and put the table into docs/benchmarks.md
    python benchmarks/uploads.py --trial --out /tmp/trial.json    a trial of the benchmark itself, with small files

A real backend process, and the client that the dashboard and `groupscope upload` use, on this machine. Memory is the largest resident
size of the backend, and of the processes in which it reads files.
"""

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from random import Random

import psutil
from pydantic import BaseModel
from results.page import MEASURED, PAGE, Kept, command_line, show_tables, stack, table, where
from scale.site import Site, site

KEPT = MEASURED / "uploads.json"
STACK = ("groupscope", "fastapi", "pyarrow")
BOUND = 300 * 2**20
"""No process may become larger."""
LOOK_SECONDS = 0.05
FILES = {"rows.jsonl": 10**9, "rows.csv": 2 * 10**8}
TRIAL = {"rows.jsonl": 10**6, "rows.csv": 10**6}


def write(path: Path, size: int) -> int:
    """Rows of about 300 letters until the file has the size; how many they are."""
    random = Random(0)
    words = [f"word{number}" for number in range(2000)]
    with path.open("w") as file:
        if path.suffix == ".csv":
            file.write("question,answer,topic\n")
        for number in count():
            if file.tell() >= size:
                return number
            question, topic = " ".join(random.choices(words, k=35)), f"topic {number % 5}"
            if path.suffix == ".csv":
                file.write(f'"{question}, and?",{number},{topic}\n')
            else:
                file.write(json.dumps({"question": question, "answer": str(number), "topic": topic}) + "\n")
    raise AssertionError("endless")


@contextmanager
def peaks(pid: int) -> Iterator[dict[str, int]]:
    """The largest resident sizes of a process and of its children, in bytes, as long as the block runs."""
    found, over = {"backend": 0, "child": 0}, threading.Event()
    process = psutil.Process(pid)

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            for name, several in (("backend", [process]), ("child", process.children(recursive=True))):
                for one in several:
                    with suppress(psutil.Error):
                        found[name] = max(found[name], one.memory_info().rss)

    watching = threading.Thread(target=look)
    watching.start()
    try:
        yield found
    finally:
        over.set()
        watching.join()


class Taken(BaseModel):
    """One file: its bytes and rows, the seconds until it was sent, and until it was an upload, and the largest sizes in bytes."""

    name: str
    bytes: int
    rows: int
    sent: float
    whole: float
    backend: int
    child: int


class Uploads(Kept):
    """What is kept of a call."""

    where: dict[str, str] = {}
    taken: list[Taken] = []


def take(running: Site, path: Path, size: int) -> Taken:
    """Upload a file of this size, and see that every row of it arrived."""
    print(f"{path.name}: {size:,} bytes", flush=True)
    rows, began, sent = write(path, size), time.monotonic(), 0.0

    def on_sent(_bytes: int) -> None:
        nonlocal sent
        sent = time.monotonic() - began

    with path.open("rb") as file, peaks(running.processes["backend"].pid) as most:
        upload = running.client.upload(path.name, file, on_sent=on_sent)
    whole = time.monotonic() - began
    assert (upload.rows, upload.duplicates, upload.empty) == (rows, 0, 0)
    return Taken(name=path.name, bytes=size, rows=rows, sent=sent, whole=whole, **most)


def tables(results: Uploads) -> str:
    header = ["file", "rows", "sent", "whole", "MB a second", "backend, at most", "reading process, at most"]
    rows = [
        [
            f"{one.name}, {one.bytes / 1e6:,.0f} MB",
            f"{one.rows:,}",
            f"{one.sent:.1f} s",
            f"**{one.whole:.1f} s**",
            f"{one.bytes / one.whole / 1e6:.0f}",
            f"{one.backend / 2**20:.0f} MiB",
            f"{one.child / 2**20:.0f} MiB",
        ]
        for one in results.taken
    ]
    said = ", ".join(results.where.values())
    return f"### Large files\n\n{table(header, rows)}\n\n{said}."


def main() -> None:
    parser = command_line(__doc__, kept=KEPT, page=PAGE)
    parser.add_argument("--trial", action="store_true", help="small files; its figures mean nothing")
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="groupscope-uploads-") as folder:
        versions = {name: f"{name} {number}" for name, number in stack(*STACK).items()}
        results = Uploads(where=where() | versions)
        (home := Path(folder) / "home").mkdir()
        with site(home) as running:
            for name, size in (TRIAL if arguments.trial else FILES).items():
                results.taken.append(take(running, Path(folder) / name, size))
    results.write(arguments.out)
    show_tables(tables(results), arguments, began, "measured uploads")
    large = [
        f"{one.name}: {max(one.backend, one.child):,} bytes"
        for one in results.taken
        if max(one.backend, one.child) > BOUND
    ]
    if large:
        raise SystemExit(f"a process became larger than {BOUND:,} bytes: {'; '.join(large)}")


if __name__ == "__main__":
    main()
