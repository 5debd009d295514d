"""Which statements of the product a run of the tests executes, in whatever process: also in one that is killed.

    python scripts/executed.py mark CLONE        # a fresh clone with its .venv: each statement of its product notes that it ran
    cd CLONE && make test-all                    # as often as wanted: what ran in any of them counts
    python scripts/executed.py read CLONE FILE   # how many ran; those that did not, with their lines, as JSON
    python scripts/executed.py compare OLD NEW   # what ran in OLD and does not in NEW

A statement notes itself in a file that all processes have mapped into their memory: that costs some 50 ns, and nothing is lost with a process.
Tests that read the product's source fail in such a clone; what they run counts all the same.
"""

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PRODUCT = ("backend", "worker", "dashboard", "groupscope")
MARK = "__executed__"
HEADER = f"from executed_statements import EXECUTED as {MARK}"
MODULE = """import mmap, os
_file = os.open({path!r}, os.O_RDWR)
EXECUTED = mmap.mmap(_file, {size})
os.close(_file)
"""

Statement = tuple[str, int, str]
"""Its file, its line, and what stands there."""


_DECORATED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """All but docstrings, which Python does not execute, and imports of the future, before which nothing may stand."""
    for node in ast.walk(tree):
        for body in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            for statement in body if isinstance(body, list) else ():
                future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
                text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
                if isinstance(statement, ast.stmt) and not future and not text:
                    yield statement


def first_line(statement: ast.stmt) -> int:
    decorators = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(one.lineno for one in decorators)])


def marked(text: str, number: int) -> tuple[str, list[int]]:
    """The text with a note before each statement, numbered from `number`; and the line of each, in this order."""
    lines, found = (
        text.splitlines(),
        sorted(statements(ast.parse(text)), key=lambda one: (first_line(one), one.col_offset)),
    )
    notes = dict[int, str]()
    for place, statement in enumerate(found):
        line = lines[first_line(statement) - 1]
        indent = line[: len(line) - len(line.lstrip())]
        has_place = len(indent.encode()) == statement.col_offset or isinstance(statement, _DECORATED)
        if has_place and not line.lstrip().startswith("elif "):  # else it is counted as not run, before and after
            notes.setdefault(first_line(statement), f"{indent}{MARK}[{number + place}] = 1")
    first = min(notes, default=None)
    written = list[str]()
    for at, line in enumerate(lines, start=1):
        written += [HEADER] if at == first else []
        written += [notes[at]] if at in notes else []
        written.append(line)
    return "\n".join(written) + "\n", [first_line(statement) for statement in found]


def mark(clone: Path) -> None:
    known = list[Statement]()
    for file in (file for package in PRODUCT for file in sorted((clone / package).rglob("*.py"))):
        text = file.read_text()
        new, lines = marked(text, len(known))
        known += [(str(file.relative_to(clone)), line, text.splitlines()[line - 1].strip()) for line in lines]
        file.write_text(new)
    hits = clone / ".executed"
    hits.write_bytes(bytes(len(known)))
    (clone / ".statements.json").write_text(json.dumps(known))
    (site,) = (clone / ".venv/lib").glob("python*/site-packages")
    (site / "executed_statements.py").write_text(MODULE.format(path=str(hits.resolve()), size=len(known)))
    print(f"{len(known):,} statements")


def read(clone: Path, file: Path) -> None:
    hits = (clone / ".executed").read_bytes()
    known: list[Statement] = [tuple(one) for one in json.loads((clone / ".statements.json").read_text())]
    not_run = [one for one, hit in zip(known, hits, strict=True) if not hit]
    file.write_text(json.dumps({"statements": len(known), "not_run": not_run}, indent=0))
    print(f"{len(known) - len(not_run):,} of {len(known):,} statements ran")


def compare(old: Path, new: Path) -> None:
    """By file and text, so that a line that moved within its file is the same."""
    before, after = (json.loads(file.read_text())["not_run"] for file in (old, new))
    known, lost = Counter((file, text) for file, _, text in before), list[Statement]()
    for file, line, text in after:
        if known[file, text]:
            known[file, text] -= 1
        else:
            lost.append((file, line, text))
    for file, line, text in lost:
        print(f"{file}:{line}  {text}")
    print(f"{len(lost)} statements ran before and do not now")


if __name__ == "__main__":
    {"mark": mark, "read": read, "compare": compare}[sys.argv[1]](*map(Path, sys.argv[2:]))
