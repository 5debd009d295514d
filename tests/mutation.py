"""Where a mutant stands in the product: a function or a constant by its name, and in it code that is compared as syntax.

So a mutant outlives a file that moves, another line break, other quotes and any comment.
"""

import ast
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from house.measures import PRODUCT


class NotOnce(ValueError):
    """What a mutant names stands nowhere in the product, or several times."""


@dataclass(frozen=True)
class Definition:
    """A function, a class, a statement that assigns, or a module, and the file that it stands in."""

    path: Path
    text: str
    node: ast.AST


Definitions = Mapping[str, list[Definition]]


def definitions(root: Path) -> Definitions:
    """All that a mutant may name: by its qualified name, with and without the module's; a module by its own."""
    by_name, modules = defaultdict[str, list[Definition]](list), defaultdict[str, list[Definition]](list)
    for path in sorted(path for package in PRODUCT for path in (root / package).rglob("*.py")):
        text, module = path.read_text(), path.parent.name if path.stem == "__init__" else path.stem
        tree = ast.parse(text)
        modules[module].append(Definition(path.relative_to(root), text, tree))
        for name, node in _named(tree):
            for qualified in (name, f"{module}.{name}"):
                by_name[qualified].append(Definition(path.relative_to(root), text, node))
    return {**modules, **by_name}


def _named(node: ast.AST, before: str = "", *, assigns: bool = True) -> Iterator[tuple[str, ast.AST]]:
    """Functions and classes at any depth, and what modules and classes assign: no local variables."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield before + child.name, child
            yield from _named(child, f"{before}{child.name}.", assigns=isinstance(child, ast.ClassDef))
        elif assigns and isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            names = (name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
            yield from ((before + name.id, child) for name in names)
        elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _named(child, before, assigns=assigns)


def mutated(mutant: Mapping[str, str], among: Definitions) -> tuple[Path, str]:
    """The path of the file that the mutant changes, and its text with the change; all else in it stays as it is written."""
    name, places = mutant["function"], among.get(mutant["function"], [])
    if len(places) != 1:
        paths = " and ".join(str(place.path) for place in places)
        raise NotOnce(
            f"{name} is the name of something in {paths}: write the module before it, as in lease.check"
            if places
            else f"Nothing in the product is called {name}: write the name that it has now"
        )
    place, code, instead = places[0], ast.parse(mutant["code"]).body, ast.parse(mutant["instead"]).body
    as_value = all(len(body) == 1 and isinstance(body[0], ast.Expr) for body in (code, instead))
    runs = _equal(place.node, [node.value for node in code if isinstance(node, ast.Expr)] if as_value else code)
    if len(runs) != 1:
        advice = "write more of what stands around it" if runs else "write what protects there now"
        raise NotOnce(f"{name} in {place.path} has this {len(runs)} times, not once; {advice}:\n{mutant['code']}")
    first, last = runs[0][0], runs[0][-1]
    # A value in brackets stays one beside any operator; the columns of syntax count bytes.
    text = f"({mutant['instead']})" if as_value else textwrap.indent(mutant["instead"], " " * first.col_offset).strip()
    line = min(node.lineno for node in (first, *getattr(first, "decorator_list", ())))
    lines = place.text.encode().splitlines(keepends=True)
    before = b"".join(lines[: line - 1]) + lines[line - 1][: first.col_offset]
    after = lines[last.end_lineno - 1][last.end_col_offset :] + b"".join(lines[last.end_lineno :])
    return place.path, (before + text.encode() + after).decode()


def _equal(scope: ast.AST, wanted: list[Any]) -> list[list[Any]]:
    """The runs of nodes beside each other in the scope that are the same syntax as these."""
    beside: list[list[Any]] = [[scope]]
    for node in _nodes(scope):
        beside += [value if isinstance(value, list) else [value] for _, value in ast.iter_fields(node)]
    runs = (nodes[at : at + len(wanted)] for nodes in beside for at in range(len(nodes) - len(wanted) + 1))
    return [run for run in runs if all(map(_same, run, wanted))]


def _same(one: object, other: ast.AST) -> bool:
    return isinstance(one, type(other)) and ast.dump(one) == ast.dump(other)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all below it but f-strings and their parts: Python 3.11 does not know where those lie."""
    if not isinstance(node, ast.JoinedStr):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _nodes(child)
