"""Notes calls of the product, the libraries and our own helpers in the process that runs the tests, once their modules are imported."""

import functools
import sys
from collections.abc import Callable
from typing import Any

Note = Callable[..., None]
_waiting: list[tuple[str, str, Note]] = []


def on_call(module: str, path: str, note: Note) -> None:
    """Call `note` with what the function or method gets, before each of its calls. Nothing is imported for that."""
    _waiting.append((module, path, note))


def install() -> None:
    """Of whatever has been imported by now."""
    for one in [one for one in _waiting if one[0] in sys.modules]:
        _waiting.remove(one)
        module, path, note = one
        *holders, name = path.split(".")
        holder = functools.reduce(getattr, holders, sys.modules[module])
        setattr(holder, name, _noting(getattr(holder, name), note))


def _noting(function: Callable[..., Any], note: Note) -> Callable[..., Any]:
    @functools.wraps(function)
    def noting(*given: Any, **named: Any) -> Any:
        note(*given, **named)
        return function(*given, **named)

    return noting
