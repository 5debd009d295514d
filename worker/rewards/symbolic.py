"""Mathematical equality through math-verify. Imported only if a run needs it: the library takes seconds.

Its own time limits use signals, which only work in a main thread and lead peers to silent zeros; they are off here, and
the process that this runs in is killed instead.
"""

import logging
from functools import lru_cache

from math_verify import parse, verify
from math_verify.parser import LatexExtractionConfig

LONGEST_ANSWER = 1000

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that the limits are off


def same_value(answer: str, reference: str) -> bool:
    """Whether both have the same mathematical value: 1/2 and 0.5, x(x+2) and x^2 + 2x.

    Raises ValueError if the reference cannot be read: then no completion could ever be right.
    """
    expected = _parsed(reference)
    if not expected:
        raise ValueError(f"the reference answer {reference[:100]!r} cannot be read as mathematics; match it as exact")
    return len(answer) <= LONGEST_ANSWER and verify(expected, _parsed(answer), timeout_seconds=None)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> list[object]:
    # As LaTeX throughout: the library's plain mode finds a 2 in "2*x" and calls it the answer.
    latex = text if "$" in text or "\\boxed" in text else f"${text.replace('**', '^')}$"
    found: list[object] = parse(latex, [LatexExtractionConfig()], parsing_timeout=None)
    return found
