"""Whether an answer is the reference, as a person reads both: right, wrong, or unclear, which leaves a completion unscored."""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod

from backend.contract.answers import last_answer_tag, last_boxed
from backend.contract.numerals import LED_IN, LONGEST, Numeral, in_digits, numerals, undressed

_SIZES = (
    r"half|halves|halb\w*|thirds?|quarters?|fourths?|fifths?|tenths?|hundredths?|thousandths?|dozens?|couple|hundreds?|thousands?"
    r"|(?:m|b|tr)illion\w*|milliard\w*|mill?[oó]n\w*|mil|mille|mio|mrd|tausend|lakhs?|crores?"
)
_HEDGES = re.compile(  # beside a number they say that it is another one: also sizes, parts and what is done with it
    r"[<>≤≥≠±+|!?^\\‰]|[^\x00-\u024f\W]|\b(?:not|never|no|none|nor|without|except|less|more|fewer|greater|under|over|below"
    r"|above|least|most|minimum|maximum|or|almost|nearly|wrong|incorrect|false|if|but|maybe|perhaps|possibly|squared|cubed"
    r"|between|pi|sqrt|log|ln|twice|double|ish|bce?|nicht|kein\w*|oder|mehr|weniger|höchstens|mindestens|fast|falsch"
    r"|cannot|root|factorial|th|st|nd|rd|minus|divided|multiplied|modulo|mod|sin|cos|tan|exp|abs|floor|ceil|times(?= \w)"
    rf"|ou|plus|moins|pas|faux|o|más|menos|non|più|meno|{_SIZES})\b|n['’]t\b",
    re.IGNORECASE,
)
_SIZE = re.compile(rf"[\\^‰]|[^\x00-\u024f\W]|\d\s?[MBT]\b|(?i:\b(?:{_SIZES})\b)")
_PAIR = re.compile(r"[(\[{]\s*-?\d+\s*,\s*-?\d+\s*[)\]}]")
_LIST = re.compile(r"([1-9]\d?),(\d\d?)")
_BLANKS = re.compile(r"\s*([-+*/=<>,;:&()\[\]{}]|\\\\)\s*")
_WORD = re.compile(r"[^\W\d_]+")
_EXPRESSION = re.compile(r"[\^√\\|]|\bsqrt\b|(?<=[\d)])\s*[+*/]\s*[\d(]|(?<=\d)\s*(?:-\s*\d|!)")
_SAYS_NOTHING = frozenset(  # other capitalised words directly before a number are a name with it, as in July 4
    "the a an answer result solution value total sum so thus therefore hence is equals about approximately approx around"
    " roughly ca exactly just only all and it i we she he they rs us usd eur gbp inr cad aud chf antwort".split()
)
_NAMED = re.compile(r"(?<!\S)([A-Z][\w'’]*)\.?[\s#-]+$|\w\(?$|\w\s*[*/]\s*$")
_VARIABLE = re.compile(r"(?<![\w'’])(?<!0 )(?<![a-z]/)[b-hj-zB-HJ-Z](?![\w'’])")  # 5 - x, but neither 5 m nor 60 km/h
_ENDS_IN_SUM = re.compile(r"(?:^|[=:,]|[^\W\d_]{2}\s)\s*(-?\d[\d\s.^{}+*/-]*)$")
_NAME = re.compile(r"^\W*([^\W\d_]\w?)\s*=\s*")
_LEFT = re.compile(r"\\?[^\W\d_]\w*(?:\s*\(\w\))?(?: [^\W\d_]+){0,4}\s*")  # x, f(x), the total cost
_MONEY = re.compile(r"[$€£¥₹¢]|\bcents?\b|\bpence\b")
_BEFORE = re.compile(
    r"[(\[\"'#~≈\s]*(?:(?:the )?(?:final |correct )?(?:answer|result|total)(?: is|\s?:|\s?=)?|about|approximately|approx\.?"
    r"|ca\.?|usd?|eur|gbp|inr|rs\.?|\\?[^\W\d_]\w*\s*=)?[\s(:]*",
    re.IGNORECASE,
)
_UNIT = re.compile(r"(?:\s*(?:(?:[a-zµß-ɏ][^\W\d_]*|[^\W\d_]{1,3}|Euros?|Dollars?)\.?(?:[\s/-]|\b)){0,2})?[)\]\"'.\s]*")
_LETTER = re.compile(r"[(\[]?([A-Za-z])[)\].:]?")
_LETTER_AND_TEXT = re.compile(r"(?:\(([A-Za-z])\)|\[([A-Za-z])\]|([A-Za-z])(?:[).:]| -))\s+(\S.*)", re.DOTALL)
_MARKED = re.compile(r"(?<!\w)[(\[]?([A-Z])[)\].:](?!\w)")
_ALONE = re.compile(r"(?<![\w'’])(?!A (?!(?:is|was|because|since|as|or|and)\b)[a-z]|I\b)([A-Z])(?![\w'’])")
_LETTERS = re.compile(r"\W?[A-Z](?:[\s,;&()\[\]]+(?:and\s+|und\s+)?[(\[]?[A-Z])+\W?|A?B?C?D?E?F?G?H?")
_DENIED = re.compile(r"(?:is\b|are\b|was\b)?\s*(?:not|no|wrong|incorrect|false|n['’]t)\b", re.IGNORECASE)
_DECIDES = {"true": "yes", "false": "no", "yes": "yes", "no": "no"}
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
    plain = undressed(text) if len(text) <= LONGEST else ""
    found = numerals(plain)
    if len(found) != 1 or (found[0].glued and len(found[0].unit) == 1) or _PAIR.search(text):
        return None
    if not any(map(str.isdigit, plain)):  # One Direction is none
        return found[0] if found[0].text == in_digits(plain) else None
    before, after = plain[: found[0].start], plain[found[0].start + len(found[0].text) :]
    is_plain = _BEFORE.fullmatch(before) and _UNIT.fullmatch(after) and not _HEDGES.search(f"{found[0].unit} {after}")
    return found[0] if is_plain else None


def numeric_verdict(answer: str, reference: str) -> Verdict:
    """Whether both are the same number. Raises ValueError if the reference is not one: then no completion could ever be right."""
    end = reference_in(reference)
    expected = number_in(end)
    if expected is None:
        raise ValueError(f"the reference answer {reference[:100]!r} is not a number; match it as exact or symbolic")
    if len(answer) > LONGEST:
        return Unclear(f"the answer has {len(answer):,} characters; say where in the completion it stands")
    plain = in_digits(undressed(answer))
    if pair := _LIST.fullmatch(end):
        if unspaced(LED_IN.sub("", plain)) == end:
            return True
        read = {one.value for one in numerals(plain)}
        if expected.value in read or {Fraction(pair[1]), Fraction(pair[2])} <= read:
            return Unclear(f"{end} may be one number or a list of two")
    left, _, right = plain.rpartition("=")
    named, computed = _LEFT.fullmatch(left) and not _HEDGES.search(left), _ENDS_IN_SUM.search(left)
    if (ends := numerals(right)) and (
        named or (computed and _computed(computed[1]) == ends[0].value)
    ):  # so 20 - 2 = 18
        plain = right.strip()
    found = numerals(plain)
    rest = plain
    for one in reversed(found):
        rest = f"{rest[: one.start]}0{rest[one.start + len(one.text) :]}"
    if not any(expected.value in (one.value, one.elsewhere) for one in found):
        lone = found[0] if len(found) == 1 else None  # as a percentage, in another unit or computed it may be right
        if lone is not None and lone.percent != expected.percent:
            shares = [each.value / 100 if each.percent else each.value for each in (lone, expected)]
            return shares[0] == shares[1]
        is_open = _EXPRESSION.search(rest) and _computed(plain) in (None, expected.value)
        if is_open or _SIZE.search(plain if lone is None or lone.unit else rest):
            return Unclear("the answer is an expression, or a size in words, and its value is not read")
        return (lone is not None and _other_unit(lone, expected)) or False
    if {one.value for one in found} != {expected.value} or found[-1].dashed:
        if len(found) == 1:
            return Unclear(f"{found[0].text} may be read as another number")
        return Unclear(f"the answer has several numbers, {', '.join(one.text for one in found[:5])}")
    for marks, what in ((_NAME, "of another name"), (_MONEY, "in other money")):
        said, meant = (set(marks.findall(text)) for text in (answer, end))
        if said != meant and (meant or said & {"cent", "cents", "pence"}) and said:
            return Unclear(f"the answer is {what} than the reference")
    return _same(rest, found[-1], expected)


def _computed(left: str) -> Fraction | None:
    """The value of sums and products of numbers; None for anything else, such as a lone number."""
    compact = re.sub(r"[\s{}]", "", left)
    compact = re.sub(
        r"(?<![/\d.^])([\d.]+)\^([2-9])(?![\d^])", lambda power: "*".join([power[1]] * int(power[2])), compact
    )
    if not re.fullmatch(r"-?\d+(?:\.\d+)?(?:[-+*]\d+(?:\.\d+)?|/[1-9]\d*)+", compact):
        return None
    terms = [re.findall(r"(^|[*/])([-+]?[\d.]+)", term) for term in re.findall(r"[-+]?[\d.*/]+", compact)]
    values = (
        prod((Fraction(one) ** (-1 if sign == "/" else 1) for sign, one in term), start=Fraction(1)) for term in terms
    )
    return sum(values, start=Fraction(0))


def _same(rest: str, one: Numeral, expected: Numeral) -> Verdict:
    """Whether a number of the reference's value is right by what stands beside it; in `rest` each number is written as 0."""
    if one.percent != expected.percent:
        return Unclear(f"one of {one.text} and {expected.text} is a percentage")
    if other_unit := _other_unit(one, expected):
        return other_unit
    if len(one.unit) == 1 and (one.glued or one.unit in "xyzijn") and not expected.glued:
        return Unclear(f"{one.text} may be a product or have a unit")
    if _EXPRESSION.search(rest):
        return Unclear("the answer is an expression, not its value")
    doubt = _HEDGES.search(f"{rest} {one.unit}") or _VARIABLE.search(rest)
    before = rest.partition("0")[0]
    if one.text.startswith("+") and re.search(r"\w\s*$", before):  # ab + 5
        return Unclear("the number is a part of a sum")
    name = _NAMED.search(before)
    if doubt is None and name and not (name[1] and name[1].casefold() in _SAYS_NOTHING):
        doubt = name
    return True if doubt is None else Unclear(f"beside the number stands {doubt[0]!r}")


def _other_unit(one: Numeral, expected: Numeral) -> Unclear | None:
    units = {numeral.unit.removesuffix("s") for numeral in (one, expected) if numeral.unit}
    return Unclear(f"the answer is in {one.unit}, and the reference in {expected.unit}") if len(units) == 2 else None


def text_verdict(answer: str, reference: str) -> Verdict:
    """Whether both are the same text, but for Markdown, quotation marks, article, last stop and case; of a choice, the letter."""
    expected = reference_in(reference)
    said, meant, plain = _bare(answer), _bare(expected), undressed(expected)
    short = re.sub(r"[\W_]", "", plain)
    is_cased = 1 < len(short) <= 4 and meant not in _DECIDES and re.search("[A-Z]", short[len(short) > 2 :])
    if is_cased and said == meant and short != re.sub(r"[\W_]", "", LED_IN.sub("", undressed(answer))):
        return Unclear(f"{answer[:50]!r} and {expected!r} differ in capitals, which may change what they mean")
    if said == meant or _DECIDES.get(meant) == said:
        return True
    if said == f"not {meant}":
        return False
    choice = _LETTER.fullmatch(plain) or _LETTER_AND_TEXT.fullmatch(plain)
    led_to = LED_IN.sub("", undressed(answer))
    if choice:
        return _choice_verdict(led_to, choice)
    several = [text for text in (plain, led_to) if _LETTERS.fullmatch(text)]
    if len(several) == 2 and len(short) > 1:
        sets = [set(re.findall("[A-Z]", text)) for text in several]
        return sets[0] == sets[1]
    numbers = [[one.value for one in numerals(text[:LONGEST])] for text in (said, meant)]
    words = [set(_WORD.findall(in_digits(text))) for text in (said, meant)]
    if is_words(expected) and number_in(expected) is not None:  # zero
        return numeric_verdict(answer, expected)
    is_near = words[0] <= words[1] or words[1] <= words[0] or _HEDGES.search(meant)
    if numbers[1] and numbers[0] == numbers[1] and is_near:
        return Unclear(f"{answer[:50]} and {expected[:50]} have the same number; match it as numeric")
    if meant and re.search(rf"(?<!\w){re.escape(meant)}(?!\w)", said):
        return Unclear("the answer holds the reference, and more")
    return False


def _choice_verdict(said: str, choice: re.Match[str]) -> Verdict:
    """Whether an answer chooses the letter of the reference; unclear if it names others or something else stands behind it."""
    letter, *texts = [one for one in choice.groups() if one]
    letter, other = letter.upper(), Unclear("the answer names several choices, or not clearly one")
    if (alone := _LETTER.fullmatch(said)) or (texts and _bare(said) == _bare(texts[0])):
        return alone is None or alone[1].upper() == letter
    begins = _LETTER_AND_TEXT.match(said)
    if begins is None:
        ends = re.fullmatch(r"\S.*\(([A-Z])\)", said)
        letters = set(_ALONE.findall(said))
        return ends[1] == letter if ends and len(letters) == 1 else (other if letter in letters else False)
    chosen, text = [one for one in begins.groups() if one]
    letters = {chosen.upper(), *_MARKED.findall(said)}
    if letter not in letters:
        return False
    is_other = len(letters) > 1 or _DENIED.match(text) or re.match(r"(?:or|and|oder|und)\b", text)
    return other if is_other or (texts and _bare(text) != _bare(texts[0])) else True


def _bare(text: str) -> str:
    plain = LED_IN.sub("", undressed(text)).strip("\"'“”‘’«»„ ").rstrip(".").casefold().replace("’", "'")
    plain = re.sub(r"(?<=\b[^\W\d_])\.(?=[^\W\d_]\b)", "", re.sub(r"^(?:the|an?) (?=\w)", "", plain))  # U.S.A
    return unspaced(re.sub(r"\bsolutions$", "solution", plain))


def unspaced(text: str) -> str:
    """The text without the blanks around signs, which say nothing: a + b is a+b, and (1, 2) is (1,2)."""
    return _BLANKS.sub(r"\1", text)


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
    if len(expected) > LONGEST_FORMULA or _LETTER_AND_TEXT.fullmatch(undressed(expected)):
        return "exact"
    bare = _FUNCTION.sub("", _IN_TEXT.sub("", expected)).strip()
    has_operation = re.search(r"[-+*/=<>(\[,]", bare) is not None and re.search(r"\d", bare) is not None
    has_operation = has_operation or re.search(r"\b[^\W\d_]\s*[+*=<>]\s*[^\W\d_]\b", bare) is not None  # but not n/a
    written = "\\" in bare or "^" in bare or (has_operation and not re.search(r"[^\W\d_]{2,}", bare))
    return "symbolic" if written and not _DATE.fullmatch(bare) else "exact"
