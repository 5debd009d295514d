"""Countdown: whether an expression reaches the target with the numbers given."""

import ast
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

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
