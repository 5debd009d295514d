"""Answers: whether one is the number or reaches the target that is asked for."""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from backend.contract.numerals import LARGEST_EXPONENT, LONGEST

_DECIMAL = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+"
_WRITTEN_NUMBER = re.compile(rf"([-+\u2212]?)\s*({_DECIMAL})(?:[eE]([-+]?[0-9]{{1,4}})|\s*/\s*({_DECIMAL}))?")


def number(text: str) -> Fraction | None:
    """The value of "14", "14.0", "+14", "1,400", "-.5", "1e3" or "3/4"; None if the text is not one number."""
    match = _WRITTEN_NUMBER.fullmatch(text.strip()) if len(text) <= LONGEST else None
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
