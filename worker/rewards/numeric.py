"""Numbers as people write them, compared exactly."""

import re
from fractions import Fraction

LONGEST_NUMBER = 1000
"""Characters. No answer is longer, and arithmetic on a longer number could be made to take minutes."""

LARGEST_EXPONENT = 1000

_DECIMAL = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+"
_NUMBER = re.compile(rf"([-+\u2212]?)\s*({_DECIMAL})(?:[eE]([-+]?[0-9]{{1,4}})|\s*/\s*({_DECIMAL}))?")


def number(text: str) -> Fraction | None:
    """The value of "14", "14.0", "+14", "1,400", "-.5", "1e3" or "3/4"; None where the text is not one number."""
    match = _NUMBER.fullmatch(text.strip()) if len(text) <= LONGEST_NUMBER else None
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

    Raises ValueError where the reference is no number: then no completion could ever be right.
    """
    expected = number(reference.rsplit("####", 1)[-1])
    if expected is None:
        raise ValueError(f"the reference answer {reference[:100]!r} is not a number; match it as exact or symbolic")
    return number(answer) == expected
