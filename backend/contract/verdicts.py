"""Whether an answer is the reference, as a person reads both: right, wrong, or unclear, which leaves a completion unscored."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from backend.contract.answers import last_answer_tag, last_boxed
from backend.contract.numerals import LONGEST, Numeral, numerals, undressed

_HEDGES = re.compile(
    r"[<>≤≥≠]|\b(?:not|never|less|more|fewer|greater|under|over|below|above|between|least|most|or)\b|n['’]t\b",
    re.IGNORECASE,
)
_EXPRESSION = re.compile(r"\^|√|\\|\bsqrt\b|(?<=[\d)])\s*[+*/]\s*[\d(]|(?<=\d)\s*-\s*\d")
_PAIR = re.compile(r"[(\[{]\s*-?\d+\s*,\s*-?\d+\s*[)\]}]")
_LED_IN = re.compile(
    r"^(?:the\s+)?(?:final\s+|correct\s+)?(?:answer|option|choice)(?:\s+is|\s*[:=])?\s*", re.IGNORECASE
)
_LETTER = re.compile(r"[(\[]?([A-Za-z])[)\].:]?")
_LETTER_AND_TEXT = re.compile(r"(?:\(([A-Za-z])\)|\[([A-Za-z])\]|([A-Za-z])[).:])\s+\S")
KEPT = 256
"""References that are remembered: each is compared with a whole group."""


@dataclass(frozen=True)
class Unclear:
    """Why nobody can say whether an answer is right."""

    reason: str


Verdict = bool | Unclear


@lru_cache(maxsize=KEPT)
def reference_in(text: str) -> str:
    r"""What an answer is compared with: what follows `####`, stands in the last \boxed{…} or answer tag, or else all."""
    _, mark, final = text.rpartition("####")
    if mark and final.strip():
        return final.strip()
    inside = last_answer_tag(text) or last_boxed(text)
    return (inside or text).strip()


@lru_cache(maxsize=KEPT)
def number_in(text: str) -> Numeral | None:
    """The one number that a reference is; None if it is something else, or more than a number with its unit."""
    found = numerals(text) if len(text) <= LONGEST else ()
    words = re.findall(r"[^\W\d_]{2,}", undressed(text))
    if len(found) != 1 or len(words) > 2 or _EXPRESSION.search(undressed(text).replace(found[0].text, "", 1)):
        return None
    if (found[0].glued and len(found[0].unit) == 1) or _PAIR.search(text):
        return None
    return found[0]


def numeric_verdict(answer: str, reference: str) -> Verdict:
    """Whether both are the same number. Raises ValueError if the reference is not one: then no completion could ever be right."""
    expected = number_in(reference_in(reference))
    if expected is None:
        raise ValueError(f"the reference answer {reference[:100]!r} is not a number; match it as exact or symbolic")
    if len(answer) > LONGEST:
        return Unclear(f"the answer has {len(answer):,} characters; say where in the completion it stands")
    plain = undressed(answer)
    before, _, after = plain.rpartition("=")
    if before and "=" not in before and numerals(after):  # 20 - 2 = 18
        plain = after
    found = numerals(plain)
    if not any(expected.value in (one.value, one.elsewhere) for one in found):
        return _unlike(found, expected)
    if {one.value for one in found} != {expected.value} or found[-1].dashed:
        if len(found) == 1:
            return Unclear(f"{found[0].text} may be read as another number")
        return Unclear(f"the answer has several numbers, {', '.join(one.text for one in found[:5])}")
    return _same(plain, found[-1], expected)


def _unlike(found: Sequence[Numeral], expected: Numeral) -> Verdict:
    """Of numbers that differ from the reference's: the same as a percentage, or in another unit, they may be right."""
    if len(found) != 1:
        return False
    one = found[0]
    if one.percent != expected.percent:
        shares = [each.value / 100 if each.percent else each.value for each in (one, expected)]
        return shares[0] == shares[1]
    return _other_unit(one, expected) or False


def _same(plain: str, one: Numeral, expected: Numeral) -> Verdict:
    """Of a number that is the reference's: right, unless what stands beside it says something else."""
    rest = plain.replace(one.text, " ", 1)
    if one.percent != expected.percent:
        return Unclear(f"one of {one.text} and {expected.text} is a percentage")
    if other_unit := _other_unit(one, expected):
        return other_unit
    if one.glued and len(one.unit) == 1 and not expected.glued:
        return Unclear(f"{one.text} may be a product or have a unit")
    if hedge := _HEDGES.search(rest):
        return Unclear(f"beside the number stands {hedge[0]!r}")
    return Unclear("the answer is an expression, not its value") if _EXPRESSION.search(rest) else True


def _other_unit(one: Numeral, expected: Numeral) -> Unclear | None:
    units = {numeral.unit.removesuffix("s") for numeral in (one, expected) if numeral.unit}
    is_other = len(units) == 2
    return Unclear(f"the answer is in {one.unit}, and the reference in {expected.unit}") if is_other else None


def text_verdict(answer: str, reference: str) -> Verdict:
    """Whether both are the same text, but for Markdown, quotation marks, a last stop and case; of a choice, the same letter."""
    expected = reference_in(reference)
    if _bare(answer) == _bare(expected):
        return True
    if letter := _LETTER.fullmatch(undressed(expected)):
        said = _LED_IN.sub("", undressed(answer))
        found = _LETTER.fullmatch(said) or _LETTER_AND_TEXT.match(said)
        return found is not None and letter[1].casefold() in {one.casefold() for one in found.groups() if one}
    both = (answer[:LONGEST], expected)
    values = [[one.value for one in numerals(text) if one.text == undressed(text)] for text in both]
    if values[0] and values[0] == values[1]:
        return Unclear(f"{answer[:50]} and {expected[:50]} are one number, written in two ways; match it as numeric")
    return False


def _bare(text: str) -> str:
    return undressed(text).strip("\"'“”‘’«»„ ").rstrip(".").casefold()


_WORDS = re.compile(r"[^\W\d_]{2,}(?:[ '’-][^\W\d_]+)*\.?")
_IN_TEXT = re.compile(r"\\(?:text|mbox|mathrm|textbf)\s*\{[^{}]*\}")
_FUNCTION = re.compile(r"\b(?:sin|cos|tan|log|ln|exp|sqrt|pi)\b")
_DATE = re.compile(r"\d+([-/.:])\d+(?:\1\d+)?")
LONGEST_FORMULA = 200


def is_words(text: str) -> bool:
    """Whether a reference is words, of which mathematics would make a product of letters: proof, yes, Paris."""
    return "\\" not in text and _WORDS.fullmatch(undressed(text)) is not None


@lru_cache(maxsize=KEPT)
def match_of(reference: str) -> str:
    """How an answer is compared with this reference if nobody says how: as a number, as mathematics, or else as a text."""
    expected = reference_in(reference)
    if number_in(expected) is not None:
        return "numeric"
    if len(expected) > LONGEST_FORMULA:
        return "exact"
    bare = _FUNCTION.sub("", _IN_TEXT.sub("", expected)).strip()
    has_operation = re.search(r"[-+*/=<>(\[,]", bare) is not None and re.search(r"\d", bare) is not None
    written = "\\" in bare or "^" in bare or (has_operation and not re.search(r"[^\W\d_]{2,}", bare))
    return "symbolic" if written and not _DATE.fullmatch(bare) else "exact"
