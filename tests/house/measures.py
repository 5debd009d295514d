"""How large the house is: lines and files of each room, and what only becomes less."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args

from pydantic import BaseModel

ROOT = Path(__file__).parents[2]
PRODUCT = ("backend", "worker", "dashboard", "groupscope")
_TEXT = {".py", ".js", ".css", ".html"}
_NAME = re.compile(r"[A-Za-z_]\w*")


def texts(*packages: str, root: Path = ROOT) -> dict[Path, str]:
    """What is written in each file of the packages, by its path below the root."""
    files = (file for package in packages for file in sorted((root / package).rglob("*")) if file.suffix in _TEXT)
    return {file.relative_to(root): file.read_text() for file in files}


def rooms(files: Mapping[Path, str]) -> dict[str, Counter[str]]:
    """Lines and files of each room: a folder of the second level with all below it, or what lies in the first level itself."""
    sizes = defaultdict[str, Counter[str]](Counter)
    for path, text in files.items():
        sizes["/".join(path.parts[: min(2, len(path.parts) - 1)])].update(lines=text.count("\n"), files=1)
    return sizes


def ratchets(product: Mapping[Path, str], tests: Mapping[Path, str]) -> dict[str, int]:
    """What is counted, and may only become less."""
    python = {path: text for path, text in product.items() if path.suffix == ".py"}
    trees = {path: ast.parse(text) for path, text in python.items()}
    functions = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, _FUNCTION)]
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    uses = Counter(name for tree in trees.values() for name in _uses(tree))
    everywhere = Counter(node.name for node in classes)
    return {
        "functions over 50 lines": sum(_lines(node) > 50 for node in functions),
        "files over 300 lines": sum(text.count("\n") > 300 for text in product.values()),
        "classes over 150 lines": sum(_lines(node) > 150 for node in classes),
        "class names that exist twice": sum(number > 1 for number in everywhere.values()),
        "functions that are named once": sum(uses[name] == 1 for name in {node.name for node in functions}),
        "lines over 130 columns": sum(len(line) > 130 for text in product.values() for line in text.splitlines()),
        "private attributes of others in tests": sum(_of_others(ast.parse(text)) for text in tests.values()),
    }


_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def _lines(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def _uses(tree: ast.AST) -> Iterator[str]:
    """Each name that is read, called or imported, once for every time that it is: not its definition."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg


def _of_others(tree: ast.AST) -> int:
    return sum(
        isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        for node in ast.walk(tree)
    )


def fields(model: type[BaseModel]) -> int:
    """Of a model and of each model nested in it, each once."""
    return sum(len(one.model_fields) for one in _nested(model))


@cache
def _nested(model: type[BaseModel]) -> frozenset[type[BaseModel]]:
    within = (one for field in model.model_fields.values() for one in _models(field.annotation))
    return frozenset({model}).union(*map(_nested, within))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and not isinstance(annotation, UnionType) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def keys(value: object) -> int:
    """Of all dicts in it: a field that moves into a dict is still one."""
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (len(value) if isinstance(value, dict) else 0) + sum(map(keys, within))
