"""Mathematical equality through math-verify. Imported only if a run needs it: the library takes seconds.

Its own time limits use signals, which only work in a main thread and lead peers to silent zeros; they are off here, and
the process that this runs in is killed instead.
"""

import logging
import re
from functools import lru_cache

from math_verify import parse, verify
from math_verify.parser import LatexExtractionConfig

from backend.contract.numerals import LED_IN, LONGEST, in_ascii
from backend.contract.verdicts import (
    Unclear,
    Verdict,
    is_words,
    number_in,
    numeric_verdict,
    reference_in,
    text_verdict,
    unspaced,
)

_AROUND = re.compile(r"^(?:\*\*|```(?:\w*\n)?|`)(.*?)(?:\*\*|```|`)$", re.DOTALL)
_IN_LATEX = [  # as the library reads it
    (re.compile(r"(?<!\\)\\[,!;: ]|~|\\\$"), ""),
    (re.compile(r"\\[\[\]()]|\$\$"), "$"),
    (re.compile(r"(?:√|(?<![\\A-Za-z])sqrt)\s*(?:\(([^()]*)\)|\{([^{}]*)\}|(\d+|[A-Za-z]))"), r"\\sqrt{\1\2\3}"),
    (re.compile(r"(?<![\\A-Za-z])pi(?![A-Za-z])|π"), r"\\pi "),
    (re.compile("∞"), r"\\infty "),
    (re.compile(r"\\varnothing|∅"), r"\\emptyset"),
    (re.compile(r"(?<=[\[(])([^;\[\]()]*);(?=[^;\[\]()]*[\])])"), r"\1,"),
]
_COMMAND = re.compile(r"\\(?:text|mbox|math\w+|operatorname|begin|end)\s*\{[^{}]*\}|\\[A-Za-z]+|\b(?:arc\w+|\w{3}h)\b")
_PROSE = re.compile(r"\b(?:[^\W\d_]{4,}|so|we|it|by|if|not|and|or|is|no|the|for|but)\b", re.IGNORECASE)
_OPERATION = re.compile(r"[\\^√]|\d\s*[-+*/]\s*\d")
_BRACKET = re.compile(r"[$\s]*(?:\\left\s*)?\\?([({\[])")
_NAMED = re.compile(r"[$\s]*\\?[^\W\d_]\w*(?:\s*\(\w\))?\s*=")

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
    if number_in(expected) is not None:
        verdict = numeric_verdict(answer, expected)
        if isinstance(verdict, bool) or number_in(answer) is not None or not _OPERATION.search(answer):
            return verdict
    bare, end = _bare(answer), _bare(expected)
    same = same_value(bare, end)
    if unspaced(bare) == unspaced(end):
        return True
    brackets = [mark[1] for mark in map(_BRACKET.match, (bare, end)) if mark]
    values = [re.findall(r"\d+", one) for one in (bare, end)]
    is_reordered = len(brackets) == 0 and values[0] != values[1] and sorted(values[0]) == sorted(values[1])
    if same and "," in end and (len({*brackets}) > 1 or is_reordered or ("=" in bare) != ("=" in end)):
        return Unclear("the answer is a list of another kind or order than the reference")
    prose = _PROSE.search(_COMMAND.sub(" ", bare))
    is_solved = ("=" in bare) == ("=" in end) or _NAMED.match(bare) or _NAMED.match(end)
    if not same and all(isinstance(one, str) for one in _parsed(bare)):
        return Unclear(f"{answer[:50]!r} cannot be read as mathematics")
    is_hedged = prose and (same or re.search(r"\d|\b(?:or|not|and)\b", bare))
    if bare.count("$") > 2 or is_hedged or (same and not is_solved):
        return Unclear("the answer holds words or several formulas, and not clearly which is meant")
    return same if same or number_in(expected) is None else Unclear("the answer is not clearly another number")


def _bare(text: str) -> str:
    """A formula as the library reads it, without Markdown around it, what leads to it and a stop at its end."""
    text = in_ascii(text).strip().rstrip(".")
    text = LED_IN.sub("", _AROUND.sub(r"\1", text).strip())
    for pattern, instead in _IN_LATEX:
        text = pattern.sub(instead, text)
    return _AROUND.sub(r"\1", text).rstrip(".").strip()


@lru_cache(maxsize=1024)
def _parsed(text: str) -> list[object]:
    # As LaTeX throughout: the library's plain mode finds a 2 in "2*x" and calls it the answer.
    latex = text if "$" in text or "\\boxed" in text else f"${text.replace('**', '^')}$"
    found: list[object] = parse(latex, [LatexExtractionConfig()], parsing_timeout=None)
    return found
