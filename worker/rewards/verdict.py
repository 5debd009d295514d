"""The score that a judge's reply gives: the last JSON, else the number that it calls so; in doubt none, with the reason."""

import re
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest

from backend.contract.answers import last_number
from backend.contract.numerals import Numeral, in_digits, numerals, undressed
from backend.contract.reading import FIRST
from worker.rewards.answers import number

_READ, _NEAR = 10_000, 120  # characters at the end of a reply, and around a number, that say what it is
_SCORE = re.compile(r'"score"\s*:\s*"?([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)')
_THOUGHTS = re.compile(r"\s*[<\[](think(?:ing)?|thoughts?|reasoning)[>\]].*?(?:[<\[]/\1[>\]]|\Z)", re.S | re.I)
_JSON = re.compile(
    r"(?i)[{}\[\]]|[\"']((?:(?:final|overall|total)[_ ])?(?:score|rating|grade|verdict))[\"']\s*:\s*"
    r"(\"[^\"]*\"|'[^']*'|[^\s,{}\[\]\"']+)"
)
_PLACEHOLDER = re.compile(r"<.*>|\.+|…|[nx]|number|int(?:eger)?|float|score", re.I)
_ITEM = re.compile(r"^[ \t>#*-]*(\d{1,2})[.)][ \t]+(?=\S)", re.M)
_STRUCK, _BOXED = re.compile(r"~~[^~]*~~|</?answer>"), re.compile(r"\\boxed\s*\{|\[\[")
_FINAL = r"final|overall|total|(?:ins)?gesamt|endgültige?"
_WORDS = r"scores?|ratings?|grades?|verdict|marks?|not[ea]|\w*note|\w*wertung|punkt(?:e|zahl)|[评得总]分|分数|点数|評価"
_WORK = "(?:answer|response|reply|solution|essay|text|work)"
_CALLED = re.compile(
    rf"(?:(?P<of>(?!(?:{_FINAL})\b)[^\W\d]+) )?(?<![/\w])"
    rf"(?P<word>(?:(?:{_FINAL}) ?)?(?:{_WORDS})|(?:{_FINAL})(?=(?: \([^()]*\))?[\"']? ?[:=|])|overall)"
    r"(?: ?[(\[][^()\[\]]*[)\]]| (?:on|from|out of|von|auf)\b[^:=]*(?=[:=])"
    rf"| (?:for (?:this|the) {_WORK}|i (?:would )?(?:give|assign|award)(?: it)?)\b)?>?"
    r"(?:\s?[-=]>\s?|[\s:=|\"'\[(-]*|[\s:;=\"'\[(-]*)"
    r"(?:(?:(?:is|was|be|ist|est|es|lautet|beträgt)\b:?|(?:of|an?|at|now|therefore)\b)[\s\"'\[(]*)*$"
)
_NO_QUALITY = "a an the my your this its their is with of i give and so as it der die das eine le la une".split()
_CLAUSE = r"[^.,;:!?()]*$"  # what belongs to the number behind it
_NOT = r"\b(?:not|cannot|never|no|less|more|fewer|under|over|below|above|at least|at most|than|if)\b|n['’]t\b"
_DENIED = re.compile(rf"(?:{_NOT}){_CLAUSE}|(?:^| )[<>≤≥]=? ?$|\b(?:rule|task|step|question|part|item) $")
_SUPPOSED = re.compile(
    rf"(?:{_NOT}|\b(?:perfect|maxim(?:um|al)|max|highest|full|top|best|possible|minimum|min|lowest|worst|passing|average|previous"
    rf"|initial|baseline|starting|expected|probability|fraction"
    rf"|to|for|could|might|instead|why|claim(?:s|ed)|demands?|ask(?:s|ed)|says|said|writes|wrote|states)\b){_CLAUSE}"
)
_SUPPOSING = re.compile(
    r"\W*(?:would|could|should|means?|requires?|needs?|if|before|is (?:for|reserved|only|not))\b|\s?[:=]"
)
_WAVERS = re.compile(
    r"\s?[+?*]|\s?(?:points?|marks?|stars?) (?:off|less|lost|short|deducted|too|away|below)\b"
    r"|\W*=\s*\d|\W*or (?:more|less|higher|lower|above|below|so)\b|\W*(?:no|maybe|perhaps|possibly|rather|actually|"
    r"wait|make|hmm|nein|eher|vs|versus|plus|minus|revised|updated|corrected|adjusted|rounded)\b[^.\d]{0,9}\d"
)
_TO = re.compile(r"\s*(?:-+>?|to|through|bis|till?|à|or|oder|\.\.\.?|…|→)\s*")
_AND, _BETWEEN = re.compile(r"\s*(?:,|and|und|et)\s*"), re.compile(r"(?:\b(?:between|zwischen|entre)|\[) ?$")
_OUT_OF = re.compile(r"\s*(?:points? |stars? |punkte )?(?:/|(?:out )?of|von|sur)\s*(?:a |the )?(?:possible )?(?:of )?")
_DIVIDED = re.compile(r"(?:-\s+)?[^\s/]+\s*/\s*([\d.]+)")
_NAME = re.compile(r"[a-z]-?$")  # GPT-4
_COUNTS = re.compile(r"\s?(?!(?:points|pts|stars|marks|is|as|was|seems|this|across)\b)[a-z]+s\b")  # 3 errors
_GIVES = frozenset("give rate award assign grade gets deserves earns receives gebe vergebe donne attribue".split())
_BESIDE = frozenset(
    "i i'd i'll d ll we would will it this a an solid strong clear only just so thus ich es eine je lui un une".split()
)
_SAID = re.compile(
    r"\s*(?:(?:points|quality|result)\s?:|this is an?) ?|.*\b(?:i'd|i would|i'll|i will) (?:say|go with) (?:an? )?"
)
_ENDS = re.compile(r"\s*(?:[.!,;](?!\w)|$)")
_JUDGED = frozenset("the that answer response reply solution essay text work first second third st nd rd th".split())
_BEHIND = re.compile(
    r"\s*(?:(?:points?|pts|p|stars?|marks?|punkte?)\b)?\s*(?:$|[^\w\s=+*/<>]|(?:because|since|as|for|given|with|weil)\b)"
)
_Mention = tuple[int, Fraction, str, str]
"""How surely a number is the score (4 on another scale, 3 the final one, 2 called so, 1 of something, 0 not called so),
its value, its text, and why it may be something else."""
_HOW = 'end the instruction with: Reply with {"score": number}'


class NoVerdict(ValueError):
    """The reply gives no score of the scale; the message says why."""


def verdict(reply: str, minimum: float, maximum: float, reading: int = FIRST) -> float:
    """The score from 0 to 1 that a reply gives on the scale, in a way of `reading`. Raises NoVerdict.

    FIRST: the last {"score": number}, else the last number; "8/10", "8 of 10" and "8 out of 10" are an 8.
    Later: the last JSON with a score, else the number that is called so ("Score: 7", "7/10"), else the only one.
    """
    if reading > FIRST:
        value = _Scale(Fraction(str(minimum)), Fraction(str(maximum))).read(without_thoughts(reply)[-_READ:])
        return (float(value) - minimum) / (maximum - minimum)
    scores = _SCORE.findall(reply)
    without_scale = re.sub(rf"(?:/|\b(?:out\s+)?of\b)\s*{re.escape(f'{maximum:g}')}(?:\.0+)?(?![.,]?[0-9])", " ", reply)
    found = scores[-1] if scores else last_number(without_scale)
    first = None if found is None else number(found)
    if first is None:
        raise NoVerdict("holds no number")
    if not minimum <= first <= maximum:
        raise NoVerdict(f"says {found}, and the scale is from {minimum:g} to {maximum:g}")
    return (float(first) - minimum) / (maximum - minimum)


def without_thoughts(reply: str) -> str:
    """The reply without the thoughts with which it begins; thoughts that do not end are all of it."""
    if begins := _THOUGHTS.match(reply):
        return reply[begins.end() :]
    before, _, behind = reply.partition("</think>")  # some templates write the opening tag themselves
    return behind if behind and "<think>" not in before else reply


def _chosen(mentions: list[_Mention]) -> Fraction:
    """The value of what is most surely the score. Raises NoVerdict."""
    highest = max((rank for rank, *_ in mentions), default=0)
    chosen = [mention for mention in mentions if mention[0] == highest]
    texts = ", ".join([*dict.fromkeys(text for *_, text, _ in chosen)][:5])
    if len({value for _, value, *_ in chosen}) > 1:
        what = "calls more than one of them the score" if highest else "does not say which is the score"
        raise NoVerdict(f"holds several numbers ({texts}) and {what}; {_HOW}")
    if doubts := [doubt for *_, doubt in chosen if doubt]:
        raise NoVerdict(doubts[0])
    if not chosen:
        raise NoVerdict("holds no number")
    return chosen[0][1]


@dataclass(frozen=True)
class _Scale:
    """Reads replies on a scale."""

    minimum: Fraction
    maximum: Fraction

    def read(self, reply: str) -> Fraction:
        """The value on the scale. Raises NoVerdict."""
        level, document, last, rest = 0, list[tuple[int, bool, str]](), list[tuple[int, bool, str]](), ""
        for mark in _JSON.finditer(reply):
            opens = mark[0] in "{["
            if mark[1] is None:
                level = max(0, level + (1 if opens else -1))
                if document and level <= opens:  # another begins, or this one ends
                    last, document, rest = document, [], reply[mark.end() :]
                continue
            is_score, text = mark[1].casefold() == "score", mark[2].strip("\"'")
            if not _PLACEHOLDER.fullmatch(text) and (is_score or re.search(r"\d", text)):
                document.append((level, not is_score, text))
        if not (last := document or last):
            return _chosen(self._mentions(reply))
        nearest = min(last)[:2]  # to the root
        values = {_chosen(self._mentions(f"score: {text}")) for *place, text in last if tuple(place) == nearest}
        later = [one for one in self._mentions("" if document else rest) if one[0] > 1]
        if len(values) > 1 or (later and _chosen(later) not in values):
            raise NoVerdict(f"gives several scores; {_HOW}")
        return values.pop()

    def _mentions(self, text: str) -> list[_Mention]:
        """The numbers of a text without the ends of the scale, the marks of a list, and names such as 2nd and GPT-4."""
        items = _ITEM.findall(text)
        text = _ITEM.sub(" ", text) if len(items) > 1 or items == ["1"] else text
        text = _BOXED.sub(" boxed score: ", _STRUCK.sub(" ", text)).replace("\n", " ; ")
        plain = undressed(text).casefold().replace("_", " ")
        is_read = " " not in plain or re.search(r"\d", plain)  # seven, but not: this one is good
        plain = in_digits(plain)
        mentions, done, numbers = list[_Mention](), 0, numerals(plain) if is_read else ()
        for one, following in zip_longest(numbers, numbers[1:]):
            if one.start < done:  # the end of a range, or what the number before is a part of
                continue
            end, before = one.start + len(one.text), plain[max(0, one.start - _NEAR) : one.start]
            between = plain[end : following.start] if following else ""
            last = following.start + len(following.text) if following else end
            joined = _TO.fullmatch(between) or (_AND.fullmatch(between) and _BETWEEN.search(before))
            is_range = joined is not None and not _COUNTS.match(plain, last)  # 7 - 2 errors
            whole = Fraction(divided[1]) if (divided := _DIVIDED.fullmatch(one.text)) else None
            if following and (is_range or _OUT_OF.fullmatch(between)):
                whole, done = following.value, last
            after = plain[max(done, end) :][:_NEAR]
            is_name = _NAME.search(before) or (one.glued and one.unit.isascii() and one.unit not in ("p", "pts"))
            rank = _rank(before, after, is_part=not is_range and whole == self.maximum)
            is_scale = is_range and whole == self.maximum and one.value in (0, 1, self.minimum)
            if is_scale or (is_name and not _CALLED.search(before)):
                continue
            clause = re.split(r"[.,;!?|](?:\s|$)", before)[-1].replace("’", "'")
            words = set(re.findall(r"[^\W\d_]+(?:'d)?", clause))  # I would give this answer a 7
            is_given = words <= (_BESIDE | _GIVES | (_JUDGED if words & _GIVES else set())) and _BEHIND.match(after)
            is_given = is_given or (_SAID.fullmatch(clause) and _ENDS.match(after))
            is_denied = _DENIED.search(before) or _COUNTS.match(after)
            value, doubt = one.value, f"gives a range from {one.text}" if is_range else ""
            if is_range and re.search(rf"\b(?:scale|skala)\b{_CLAUSE}", before):
                rank, doubt = 4, f"uses a scale from {one.text}, and not the one of this judge"
            elif is_name or _WAVERS.match(after) or (rank == 0 and (is_denied or not is_given)):
                doubt = f"says {one.text}, and not clearly that it is the score"
            elif not is_range:
                value, doubt = self._value(one, whole)
            mentions.append((rank, value, one.text[:50], doubt))
        return mentions

    def _value(self, one: Numeral, whole: Fraction | None) -> tuple[Fraction, str]:
        """The number on the scale, or why it is not on it; `whole` is what it is a part of."""
        scale = f"the scale is from {float(self.minimum):g} to {float(self.maximum):g}"
        factor = whole if whole and _DIVIDED.fullmatch(one.text) else 1
        whole = Fraction(100) if one.percent else whole or self.maximum
        of_one = self.minimum == 0 and self.maximum == 1 and whole in (10, 100)
        if whole != self.maximum and not of_one:
            return one.value, f"says {one.text[:50]} of {float(whole):g}, and {scale}"
        values = [value * factor * self.maximum / whole for value in {one.value, one.elsewhere} if value is not None]
        on_scale = [value for value in values if self.minimum <= value <= self.maximum]
        if len(on_scale) == 1:
            return on_scale[0], ""
        return one.value, f"says {one.text[:50]}{', which may be read in two ways,' * bool(on_scale)} and {scale}"


def _rank(before: str, after: str, *, is_part: bool) -> int:
    """How surely a number is the score by what stands around it; `is_part`: it is a part of the scale's maximum."""
    called = _CALLED.search(before)
    if _SUPPOSING.match(after) or _COUNTS.match(after) or _SUPPOSED.search(before[: called and called.start("word")]):
        return 0
    # as in "Note: 1 fact is missing"
    is_remark = called and called["word"].startswith("not") and re.match(r"\s?[^\W\d]", after)
    if not is_part and (called is None or is_remark):
        return 0
    if re.match(_FINAL, called["word"]) if called else re.search(rf"\b(?:{_FINAL})\b{_CLAUSE}", before):
        return 3
    named = (called["of"] or "a") not in _NO_QUALITY if called else re.search(r"[^\W\d] ?[:=|-]+ ?$", before)
    return 1 if named or re.match(r" (?:on|for|in) ", after) else 2
