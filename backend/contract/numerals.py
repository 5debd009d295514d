"""Numbers as people write them: with currency, units, separators and Markdown around them, and in digits of any width.

Whether 1.234 is a little more than one or a thousand depends on the country: such a number has a second value, which is in doubt.
"""

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

LONGEST = 1000
"""Characters. No answer is longer, and arithmetic on a longer number could be made to take minutes."""
LARGEST_EXPONENT = 1000
_BEFORE, _BEHIND = 200, 20  # characters around the last digit that nearly always hold its number and what belongs to it
_DASHES = "‐‑‒–—―−﹣－"
_SLASHES = "⁄∕"
_LENGTHS = r"(?:[kcdm]m|ft|in|yd|mi|units?|inch(?:es)?|feet|[a-z]*met(?:er|re)s?)"
_DRESS = [  # what stands around a number and says nothing about it
    (re.compile(r"</?(?:b|i|u|em|strong|span)>"), ""),
    (
        re.compile(r"((?<![\w)\]}%])-)?\\[cdt]?frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))"),
        r" \1\2\3/\4\5",
    ),
    (re.compile(r"\\(?:text|mathrm|mathbf|textbf|mbox)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\\f?box(?:ed)?\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(rf"(\d\s*{_LENGTHS}|\d\s+m)\s*\^\s*\{{?2\}}?(?!\w)"), r"\1sq"),  # an area, which is one number
    (re.compile(rf"(\d\s*{_LENGTHS}|\d\s+m)\s*\^\s*\{{?3\}}?(?!\w)"), r"\1cb"),
    (re.compile(r"(?<![\w)\]}])-\s?\((\d[\d.,]*)\)"), r"-\1"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\!|(?<=\d)_(?=\d{3})"), ""),
    (re.compile(r"\\[,;: ]|~|(?<!\s)\s*(?:\^\s*\{?\s*\\circ\b\s*\}?|°)"), " "),
    (re.compile(r"\\(?:times|cdot)|[×·]"), "*"),
    (re.compile(r"\\div\b|÷"), "/"),
    (re.compile(r"\\([%$#&_])"), r"\1"),
    (re.compile(r"\\[()\[\]]|\*\*|__|`|\$"), " "),
    (re.compile(r"(?<![\w*])[*_](?=\S)|(?<=\S)[*_](?![\w*])"), " "),
]
_MARKS = "\\*_`$~{×·÷°<(^"
_SCALES = {"hundred": 2, "thousand": 3, "k": 3, "million": 6, "mn": 6, "billion": 9, "bn": 9, "trillion": 12}
_UNITS = "zero one two three four five six seven eight nine ten eleven twelve".split()
_UNITS += [f"{word}teen" for word in ("thir", "four", "fif", "six", "seven", "eigh", "nine")]
_TENS = [f"{word}ty" for word in ("twen", "thir", "for", "fif", "six", "seven", "eigh", "nine")]
_WORDS = {word: number for number, word in enumerate(_UNITS)} | {word: 10 * n for n, word in enumerate(_TENS, 2)}
_IN_WORDS = re.compile(rf"\b(?:({'|'.join(_TENS)})(?:[ -]({'|'.join(_UNITS[1:10])}))?|({'|'.join(_UNITS)}))\b")
_GROUPED = r"\d{1,3}(?:[ '’]\d{3})+(?!\d)(?:[.,]\d+)?"
_NUMBER = re.compile(
    r"(?:(?P<dash>(?<=[^\W\d_]\s)-\s(?=[\d.,]))|(?P<sign>(?<![\w.)\]%])-(?=[\d.,])|(?<![\w)\]%])(?<![\w)\]%] )-\s(?=[\d.,])"
    r"|\b(?:minus|negative)\s+|(?<![\w)])\+\s?))?"
    rf"(?P<whole>\d+\s+(?=\d+\s*/\s*\d))?(?P<body>{_GROUPED}|\d+(?:[.,]\d+)*|[.,]\d+)"
    r"(?:\s*/\s*(?P<divisor>\d+(?:\.\d+)?)|[eE](?P<e>[-+]?\d{1,4})(?!\w)|\s*[x*]\s*10\s*\^\s*\{?(?P<power>[-+]?\d{1,4})\}?)?"
    r"(?:(?P<percent>\s*(?:%|percent\b|per\s?cent\b|pct\b))|(?P<glued>[^\W\d_]+)|\s(?P<unit>[^\W\d_]+))?"
)

LED_IN = re.compile(  # what leads to an answer and says nothing about it
    r"^(?:it['’]?s|it is|i (?:choose|pick|select|chose)|die antwort ist|la réponse est|la respuesta es"
    r"|(?:the\s+)?(?:final\s+|correct\s+)?(?:answer|option|choice)(?:\s+is|\s*[:=])?)(?:(?<=[:=])|(?=\W))\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Numeral:
    """One number as it is written: its value, the one that it has elsewhere, whether it is a percentage, and the word behind it.

    `glued` says that the word follows without a space, as in 5cm and 2x; `dashed` that a dash before it may be a minus sign or
    only part of the sentence, as in "the answer - 5"; `start` is its first character in the text without dress.
    """

    text: str
    value: Fraction
    elsewhere: Fraction | None = None
    percent: bool = False
    unit: str = ""
    glued: bool = False
    dashed: bool = False
    start: int = 0


def undressed(text: str) -> str:
    """The text in plain digits, dashes and spaces, without Markdown, LaTeX's marks and currency signs."""
    text = in_ascii(text)
    if any(mark in text for mark in _MARKS):
        for pattern, instead in _DRESS:
            text = pattern.sub(instead, text)
    return " ".join(text.split()).rstrip(".").strip()


def in_ascii(text: str) -> str:
    """The text with each sign as ASCII has it, if that means the same; letters stay."""
    return text if text.isascii() else "".join(map(_plain, text))


@lru_cache(maxsize=4096)
def _plain(sign: str) -> str:
    """A character as ASCII has it, if it means the same: ½ becomes a fraction, ² a power, a currency sign nothing."""
    if sign.isascii():
        return sign
    if sign in _DASHES or sign in _SLASHES:
        return "-" if sign in _DASHES else "/"
    kind, category = unicodedata.decomposition(sign).partition(" ")[0], unicodedata.category(sign)
    if category == "Nd":
        return str(unicodedata.digit(sign))
    if kind == "<fraction>":
        return " " + unicodedata.normalize("NFKC", sign).replace("\u2044", "/")
    if kind == "<super>":
        return "^" + unicodedata.normalize("NFKC", sign)
    if kind in ("<wide>", "<narrow>"):
        return unicodedata.normalize("NFKC", sign)
    return " " if category == "Zs" else "" if category == "Sc" else sign


def numerals(text: str) -> tuple[Numeral, ...]:
    """The numbers that stand in a text, in their order; those in words only if none is in digits."""
    found = (_numeral(match) for match in _NUMBER.finditer(in_digits(undressed(text))))
    return tuple(one for one in found if one is not None)


def in_digits(plain: str) -> str:
    """An undressed text whose numbers in words are in digits, if it has no digits of its own."""
    if len(plain) > LONGEST or any(map(str.isdigit, plain)):
        return plain
    return _IN_WORDS.sub(lambda words: str(sum(_WORDS[word] for word in words.groups() if word)), plain.casefold())


def last_numeral(text: str) -> str | None:
    """The last number of a text, however long it is, as it is written; None if it has none."""
    last = next((at for at in reversed(range(len(text))) if text[at].isnumeric() and not text[at].isalpha()), None)
    if last is None:
        return None
    for part in (text[max(0, last - _BEFORE) : last + _BEHIND], text):
        matches = list(_NUMBER.finditer(undressed(part)))
        found = next((one for match in reversed(matches) if (one := _numeral(match)) is not None), None)
        if found is not None and (len(matches) > 1 or last < _BEFORE):  # the first of a part may be cut
            return found.text
    return found.text if found is not None else None


def _numeral(match: re.Match[str]) -> Numeral | None:
    """None for what looks like a number and is none, such as a version or 1/0, or is too long for one."""
    values = _values(match["body"]) if len(match[0]) <= LONGEST else []
    power = match["e"] or match["power"] or "0"
    divisor = Fraction(match["divisor"] or 1)
    if not values or not divisor or abs(int(power)) > LARGEST_EXPONENT:
        return None
    unit = (match["glued"] or match["unit"] or "").casefold()
    scale = Fraction(10) ** (int(power) + _SCALES.get(unit, 0))
    sign = -1 if match["sign"] and match["sign"].strip() != "+" else 1
    value, *others = (sign * (Fraction(match["whole"] or 0) + one / divisor) * scale for one in values)
    others = [-value] if match["dash"] else others
    end = match.end() if match["unit"] is None or unit in _SCALES else match.start("unit")
    return Numeral(
        match.string[match.start() : end].strip(),
        value,
        others[0] if others else None,
        percent=match["percent"] is not None,
        unit="" if unit in _SCALES else unit,
        glued=match["glued"] is not None and unit not in _SCALES,
        dashed=match["dash"] is not None,
        start=match.start(),
    )


def _values(body: str) -> list[Fraction]:
    """What digits with separators mean, the way of English first; nothing if no country writes them so."""
    digits = re.sub(r"[ '’]", "", body)
    marks = [sign for sign in digits if sign in ".,"]
    if not marks:
        return [Fraction(digits)]
    last = marks[-1]
    whole, _, part = digits.rpartition(last)
    decimal = Fraction(f"{re.sub('[.,]', '', whole) or 0}.{part}")
    if len(set(marks)) == 2:  # the last of them divides whole and decimals
        return [decimal] if marks.count(last) == 1 and _is_grouped(whole, marks[0]) else []
    together = Fraction(digits.replace(last, ""))
    if len(marks) > 1:
        return [together] if _is_grouped(digits, last) else []
    if len(part) != 3 or not 1 <= len(whole) <= 3 or whole.startswith("0") or whole == "" or digits != body:
        return [decimal]
    return [together, decimal] if last == "," else [decimal, together]


def _is_grouped(digits: str, mark: str) -> bool:
    """Whether the marks stand between thousands, as in 1,234,567, or between lakhs, as in 12,34,567."""
    mark = re.escape(mark)
    return re.fullmatch(rf"\d{{1,3}}(?:{mark}\d{{3}})+|\d{{1,2}}(?:{mark}\d{{2}})+{mark}\d{{3}}", digits) is not None
