"""No part of the product writes CSV: a spreadsheet takes a cell that begins with = + - or @ for a formula, and Parquet and JSON have no such thing."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for part in ("backend", "worker", "dashboard", "groupscope")
    for path in (ROOT / part).rglob("*")
    if path.suffix in (".py", ".js", ".html")
]
WRITES = re.compile(r"\bimport csv\b|\bfrom csv\b|\.to_csv\b|text/csv|\.csv\b|write_csv")
READS = [ROOT / "backend/uploads" / name for name in ("formats.py", "separated.py")]  # what people bring
WRITER = re.compile(r"\bwriter\b|DictWriter|\.to_csv\b|text/csv|write_csv")


def test_no_part_writes_csv() -> None:
    assert all(
        sum(path.is_relative_to(ROOT / part) for path in SOURCES) > 30 for part in ("backend", "worker", "dashboard")
    )
    found = {path: WRITER if path in READS else WRITES for path in SOURCES}
    assert [str(path) for path, pattern in found.items() if pattern.search(path.read_text())] == []
