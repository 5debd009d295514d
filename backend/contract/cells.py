"""A row of a person's data, whose columns also go by what stands in their cells: a struct's field, the turns of a chat.

    reward_model.ground_truth   the field of a struct, also of one that is written as JSON
    messages.chat               the turns that are asked: all up to the user's last one
    messages.answer             the assistant's answer behind them
    choices.lettered            A. …, B. …, on a line each
    answer.letter               the letter of a choice that is given by its index from 0; `letter_from_1`: from 1
    instruction + input         both, one below the other; what is empty is left out
    answer in choices           the letter of the choice whose text is the answer
    chosen & rejected           what both begin with: the turns, or the words
    chosen - rejected           what chosen has beyond that

A column whose own name is written so comes first: what a name meant yesterday it means today.
"""

import json
import re
from collections.abc import Callable, Container, Mapping
from itertools import takewhile
from string import ascii_uppercase
from typing import cast

from backend.contract.base import Json
from backend.contract.turns import turns_in, written

CHAT, ANSWER, LETTERED, LETTER, LETTER_FROM_1 = "chat", "answer", "lettered", "letter", "letter_from_1"
"""What is made of a whole cell."""

_OF_TWO = re.compile(r" ([&+-]|in) ")


class Cells(dict[str, Json]):
    """A row. Names as above are found by `[]`, `in` and `get`; only the columns themselves are counted and listed."""

    def __missing__(self, name: str) -> Json:
        if (found := _made(self, name)) is None:
            raise KeyError(name)
        return found

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and _made(self, name) is not None)

    def get(self, name: str, default: Json = None) -> Json:  # type: ignore[override]  # dict's has overloads of a default's type
        """The cell, or what is made of cells under this name."""
        try:
            return self[name]
        except KeyError:
            return default


def base_of(name: str, columns: Container[str]) -> str | None:
    """The column of which a name is made, of two the first; None if there is none."""
    if name in columns:
        return name
    first, *others = _OF_TWO.split(name, maxsplit=1)
    if others:
        return base_of(first, columns) if base_of(others[1], columns) is not None else None
    dots = (at for at, sign in enumerate(name) if sign == ".")
    return next((name[:at] for at in dots if name[:at] in columns), None)


def _made(row: Mapping[str, Json], name: str) -> Json:
    """What is made of the row's cells under a name that no column has; None if nothing is."""
    if two := _OF_TWO.search(name):
        first, second = (row.get(part) for part in (name[: two.start()], name[two.end() :]))
        return _OPERATIONS[two[1]](first, second)
    base = base_of(name, row.keys()) if "." in name else None
    return None if base is None else _within(row[base], name[len(base) + 1 :])


def _within(cell: Json, path: str) -> Json:
    """The part of a cell at a dotted path."""
    if inside := struct_in(cell):
        if path in inside:
            return inside[path]
        first, _, rest = path.partition(".")
        if rest and first in inside:
            return _within(inside[first], rest)
    return VIEWS[path](cell) if path in VIEWS else None


def struct_in(cell: Json) -> dict[str, Json] | None:
    """A struct, also one that is written as JSON; None for anything else."""
    cell = written(cell)
    return cell if isinstance(cell, dict) else None


def _asked(cell: Json) -> Json:
    turns = turns_in(cell)
    last = next((place for place in reversed(range(len(turns))) if turns[place]["role"] == "user"), None)
    return None if last is None or len(turns) > last + 2 else cast(Json, turns[: last + 1])


def _answer(cell: Json) -> Json:
    """The last turn, if it is the assistant's and follows on another's, or is all there is."""
    *before, last = turns_in(cell) or [{"role": "", "content": ""}]
    follows = not before or before[-1]["role"] != "assistant"
    return last["content"] if last["role"] == "assistant" and follows else None


def _choices(cell: Json) -> list[tuple[str, str]]:
    """The choices with their letters: of a list, of an object by letters, or of two lists, `text` and `label`."""
    cell = written(cell)
    if isinstance(cell, dict) and isinstance(texts := cell.get("text"), list):
        labels = cell.get("label", cell.get("labels"))
        letters = [str(one) for one in labels] if isinstance(labels, list) else ascii_uppercase
        return list(zip(letters, map(str, texts), strict=False))
    if isinstance(cell, dict):
        return [(str(letter), str(text)) for letter, text in cell.items() if text not in (None, "")]
    if not isinstance(cell, list) or len(cell) > len(ascii_uppercase):
        return []
    if all(isinstance(one, dict) and {"label", "text"} <= one.keys() for one in cell):
        return [(str(one["label"]), str(one["text"])) for one in cell if isinstance(one, dict)]
    return list(zip(ascii_uppercase, map(str, cell), strict=False))


def _letter(cell: Json, first: int) -> Json:
    """Of an index the letter; a letter stays."""
    text = str(cell).strip().strip("().")
    if isinstance(cell, bool) or not re.fullmatch(r"[0-9]{1,2}(\.0)?|[A-Za-z]", text):
        return None
    if text.isalpha():
        return text.upper()
    place = int(float(text)) - first
    return ascii_uppercase[place] if 0 <= place < len(ascii_uppercase) else None


VIEWS: Mapping[str, Callable[[Json], Json]] = {
    CHAT: _asked,
    ANSWER: _answer,
    LETTERED: lambda cell: "\n".join(f"{letter}. {text}" for letter, text in _choices(cell)) or None,
    LETTER: lambda cell: _letter(cell, 0),
    LETTER_FROM_1: lambda cell: _letter(cell, 1),
}


def _joined(first: Json, second: Json) -> Json:
    cells = [cell for cell in (first, second) if cell not in (None, "", [])]
    texts = [cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False) for cell in cells]
    return "\n\n".join(text.strip() for text in texts) or None


def _divided(first: Json, second: Json) -> tuple[Json, Json]:
    """What two cells begin with, and what the first has beyond it; None where there is nothing, or more than an answer."""
    one, other = turns_in(first), turns_in(second)
    if one and other:
        *asked, last = one
        if not asked or asked != other[:-1] or asked[-1]["role"] != "user":
            return None, None
        return cast(Json, asked), last["content"] if last["role"] == "assistant" else None
    if not (isinstance(first, str) and isinstance(second, str)):
        return None, None
    signs = takewhile(lambda both: both[0] == both[1], zip(first, second, strict=False))
    begin = "".join(sign for sign, _ in signs)
    begin = begin[: len(begin) - len(re.split(r"\s", begin)[-1])]  # a word belongs to the answers as a whole
    return begin.rstrip() or None, first[len(begin) :].strip() or None


_OPERATIONS: Mapping[str, Callable[[Json, Json], Json]] = {
    "+": _joined,
    "in": lambda text, choices: next(
        (one for one, other in _choices(choices) if other.strip() == str(text).strip()), None
    ),
    "&": lambda first, second: _divided(first, second)[0],
    "-": lambda first, second: _divided(first, second)[1],
}
