"""Plain English: phrases that have to be read twice stand in no text, docstring, comment or page."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
CODE = [
    path
    for part in ("backend", "worker", "dashboard", "groupscope", "benchmarks", "scripts")
    for path in (ROOT / part).rglob("*.py")
]
# phrase -> what to write instead
INSTEAD = {
    r"so many": "the given number of",
    r"(of|from) none": "say what is missing",
    r"(?<!there )(is|are|was|were) no (?!longer\b)\w+": "is not a …",
    r"(is|are) no more(?! than)": "no longer exists",
    r"whoever": "the one that, the caller",
    r"what is left": "the rest, the remaining …",
    r"told": "reported, said, synced",
    r"that there (is|was)": "leave it out",
    r"none of no": "None if there are none",
    r"where none is": "if there is none",
}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The (line, text) of each string and comment of a module; of a page, its lines."""
    source = path.read_text()
    if path.suffix == ".md":
        yield from enumerate(source.splitlines(), start=1)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@cache
def everything() -> list[tuple[Path, int, str]]:
    """Every text of the product, read once for all phrases."""
    return [(path.relative_to(ROOT), line, text) for path in PAGES + CODE for line, text in texts(path)]


@pytest.mark.parametrize("phrase", INSTEAD)
def test_no_text_has_to_be_read_twice(phrase: str) -> None:
    refused = re.compile(rf"\b{phrase}\b", re.IGNORECASE)
    found = [
        f"{path}:{line}: … {text[max(0, match.start() - 40) : match.end() + 40]} …".replace("\n", " ")
        for path, line, text in everything()
        for match in refused.finditer(text)
    ]
    assert not found, f"write {INSTEAD[phrase]!r} instead:\n" + "\n".join(found)
