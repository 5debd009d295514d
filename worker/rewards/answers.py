"""Answers: where one stands in a completion, and whether it is the number or reaches the target that is asked for."""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

# A sign belongs to the number unless it stands between two operands: "5-3" holds 5 and 3, "= -3" holds -3.
_NUMBER = re.compile(
    r"(?:(?<![\w.)])[-+\u2212])?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
)
_BRACE = re.compile(r"\\boxed\{|[{}]")


def find_answer(text: str, how: str) -> str | None:
    """The answer in `text`: `answer_tag`, `last_number`, `boxed` or `whole`; None if there is none."""
    match how:
        case "answer_tag":
            found = last_answer_tag(text)
        case "last_number":
            found = last_number(text)
        case "boxed":
            found = last_boxed(text)
        case "whole":
            found = text
        case _:
            raise ValueError(f"there is no way {how!r} to find an answer")
    return None if found is None else found.strip()


def last_answer_tag(text: str) -> str | None:
    """What stands between the last <answer> that is closed and the first </answer> after it."""
    start = text.rfind("<answer>", 0, max(text.rfind("</answer>"), 0))
    return None if start < 0 else text[start + len("<answer>") : text.index("</answer>", start)]


def last_number(text: str) -> str | None:
    """The last number as it is written, with its sign, thousands separators and decimals."""
    numbers = _NUMBER.findall(text)
    return numbers[-1] if numbers else None


def last_boxed(text: str) -> str | None:
    r"""What stands in the last \boxed{…} whose braces balance."""
    last = None
    open_braces: list[re.Match[str]] = []
    for brace in _BRACE.finditer(text):
        if brace.group() != "}":
            open_braces.append(brace)
        elif open_braces:
            opening = open_braces.pop()
            if opening.group() != "{":
                last = text[opening.end() : brace.start()]
    return last


LONGEST_NUMBER = 1000
"""Characters. No answer is longer, and arithmetic on a longer number could be made to take minutes."""

LARGEST_EXPONENT = 1000

_DECIMAL = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+"
_WRITTEN_NUMBER = re.compile(rf"([-+\u2212]?)\s*({_DECIMAL})(?:[eE]([-+]?[0-9]{{1,4}})|\s*/\s*({_DECIMAL}))?")


def number(text: str) -> Fraction | None:
    """The value of "14", "14.0", "+14", "1,400", "-.5", "1e3" or "3/4"; None if the text is not one number."""
    match = _WRITTEN_NUMBER.fullmatch(text.strip()) if len(text) <= LONGEST_NUMBER else None
    if match is None:
        return None
    sign, decimal, exponent, divisor = match.groups()
    value = _decimal(decimal)
    if exponent is not None:
        if abs(int(exponent)) > LARGEST_EXPONENT:
            return None
        value *= Fraction(10) ** int(exponent)
    if divisor is not None:
        if not _decimal(divisor):
            return None
        value /= _decimal(divisor)
    return value if sign in ("", "+") else -value


def _decimal(text: str) -> Fraction:
    return Fraction(text.replace(",", ""))


def same_number(answer: str, reference: str) -> bool:
    """Whether both are the same number. A reference may end in "#### 42", as GSM8K's do.

    Raises ValueError if the reference is not a number: then no completion could ever be right.
    """
    expected = number(reference.rsplit("####", 1)[-1])
    if expected is None:
        raise ValueError(f"the reference answer {reference[:100]!r} is not a number; match it as exact or symbolic")
    return number(answer) == expected


LONGEST_EXPRESSION = 200
"""Characters; six numbers and their brackets need a third of it."""


def reaches(expression: str, numbers: Sequence[int], target: int) -> bool:
    """Whether `expression` has the value `target` and uses only + - * / and `numbers`, each at most once.

    The text is parsed, never evaluated by Python. Anything that is not such an expression is simply not right.
    """
    if len(expression) > LONGEST_EXPRESSION:
        return False
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
        used = Counter(node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        return used <= Counter(numbers) and _value(tree) == target
    except (SyntaxError, ValueError, ZeroDivisionError, MemoryError, RecursionError):
        return False


def _value(node: ast.expr) -> Fraction:
    """Exact; raises ValueError for anything but numbers and the four operations."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return Fraction(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _value(left) + _value(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _value(left) - _value(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _value(left) * _value(right)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _value(left) / _value(right)
    raise ValueError("not + - * / of whole numbers")
