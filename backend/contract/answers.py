"""Where an answer stands in a completion."""

import re

from backend.contract.numerals import last_numeral
from backend.contract.reading import FIRST

ANSWERS = ("answer", "solution", "target", "ground_truth", "label")
"""Names by which a reward function may ask for the reference answer, unless a column of the data has the name."""
# A sign belongs to the number unless it stands between two operands: "5-3" holds 5 and 3, "= -3" holds -3.
_NUMBER = re.compile(
    r"(?:(?<![\w.)])[-+\u2212])?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
)
_BRACE = re.compile(r"\\boxed\{|[{}]")


def find_answer(text: str, how: str, reading: int = FIRST) -> str | None:
    """The answer in `text`: `answer_tag`, `last_number`, `boxed` or `whole`, in a way of `reading`; None if there is none."""
    number = last_number if reading == FIRST else last_numeral
    ways = {"answer_tag": last_answer_tag, "last_number": number, "boxed": last_boxed}
    if how not in (*ways, "whole"):
        raise ValueError(f"there is no way {how!r} to find an answer")
    found = ways[how](text) if how in ways else text
    return None if found is None else found.strip()


def last_answer_tag(text: str) -> str | None:
    """What stands between the last <answer> that is closed and the first </answer> after it."""
    start = text.rfind("<answer>", 0, max(text.rfind("</answer>"), 0))
    return None if start < 0 else text[start + len("<answer>") : text.index("</answer>", start)]


def last_number(text: str) -> str | None:
    """The last number as it is written, with its sign, thousands separators and decimals."""
    numbers = _NUMBER.findall(text)
    return numbers[-1] if numbers else None


def last_boxed(text: str) -> str | None:
    r"""What stands in the last \boxed{…} whose braces balance."""
    last = None
    open_braces: list[re.Match[str]] = []
    for brace in _BRACE.finditer(text):
        if brace.group() != "}":
            open_braces.append(brace)
        elif open_braces:
            opening = open_braces.pop()
            if opening.group() != "{":
                last = text[opening.end() : brace.start()]
    return last
