"""Mathematical equality through math-verify. Imported only if a run needs it: the library takes seconds.

Its own time limits use signals, which only work in a main thread and lead peers to silent zeros; they are off here, and
the process that this runs in is killed instead.
"""

import logging
import re
from functools import lru_cache

from math_verify import parse, verify
from math_verify.parser import LatexExtractionConfig

from backend.contract.numerals import LONGEST, in_ascii
from backend.contract.verdicts import Unclear, Verdict, is_words, number_in, numeric_verdict, reference_in, text_verdict

_AROUND = re.compile(r"^(?:\*\*|`)(.*?)(?:\*\*|`)$", re.DOTALL)
_SPACE = re.compile(r"\\[,!;: ]|~")

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that the limits are off


def same_value(answer: str, reference: str) -> bool:
    """Whether both have the same mathematical value: 1/2 and 0.5, x(x+2) and x^2 + 2x.

    Raises ValueError if the reference cannot be read: then no completion could ever be right.
    """
    expected = _parsed(reference)
    if not expected:
        raise ValueError(f"the reference answer {reference[:100]!r} cannot be read as mathematics; match it as exact")
    return len(answer) <= LONGEST and verify(expected, _parsed(answer), timeout_seconds=None)


def value_verdict(answer: str, reference: str) -> Verdict:
    """Whether both have the same value, read as a person reads them: words are compared as text, and a lone number as one.

    Raises ValueError as `same_value` does.
    """
    expected = reference_in(reference)
    if is_words(expected):
        return text_verdict(answer, expected)
    if len(answer) > LONGEST:
        return Unclear(f"the answer has {len(answer):,} characters; say where in the completion it stands")
    if number_in(expected) is not None and number_in(answer) is not None:
        return numeric_verdict(answer, expected)
    return same_value(_bare(answer), _bare(expected))


def _bare(text: str) -> str:
    """A formula in plain digits and dashes, without thin spaces, Markdown around it and a stop at its end."""
    text = _SPACE.sub("", in_ascii(text)).replace("\\$", "").strip().rstrip(".")
    return _AROUND.sub(r"\1", text).rstrip(".").strip()


@lru_cache(maxsize=1024)
def _parsed(text: str) -> list[object]:
    # As LaTeX throughout: the library's plain mode finds a 2 in "2*x" and calls it the answer.
    latex = text if "$" in text or "\\boxed" in text else f"${text.replace('**', '^')}$"
    found: list[object] = parse(latex, [LatexExtractionConfig()], parsing_timeout=None)
    return found
