"""Phrases that completions use: found by counting, not given. The reward has no part in the choice."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

LONGEST = 6  # words
CANDIDATES = 240
RARE = 0.02  # of the completions of a part of the window: a rarer phrase is not looked for
SAMPLE = 250  # completions of a part in which phrases are looked for
COUNTED = 300  # words of a completion, from either end, in which phrases are looked for

MARKS = frozenset(".,;:!?()[]{}\"'`|~_“”‘’…。,、")

Phrase = tuple[str, ...]


def found(parts: Sequence[Sequence[Sequence[str]]]) -> list[Phrase]:
    """The phrases whose use varies most among completions; `parts` has completions as words, by part of the window.

    A phrase must be in RARE of the completions of a part. Numbers alone are none: they are counted as digits.
    """
    texts = [[ends(spoken) for spoken in part[:: 1 + len(part) // SAMPLE]] for part in parts if part]
    variances: dict[Phrase, float] = {}
    frequent: Collection[Phrase] = ()
    for length in range(1, LONGEST + 1):
        found_now = _frequent(texts, length, frequent)
        variances |= found_now
        frequent = found_now.keys()
    sayings = [phrase for phrase in variances if _is_saying(phrase)]
    sayings.sort(key=lambda phrase: (-variances[phrase], -len(phrase), phrase))
    return sayings[:CANDIDATES]


def _is_saying(phrase: Phrase) -> bool:
    """Whether it has a letter, and neither begins nor ends with a mark that belongs to no word."""
    return any(any(map(str.isalpha, word)) for word in phrase) and not {phrase[0], phrase[-1]} & MARKS


def ends(spoken: Sequence[str]) -> Sequence[str]:
    """The words in which phrases are looked for: of a long text both ends."""
    return spoken if len(spoken) <= 2 * COUNTED else [*spoken[:COUNTED], *spoken[-COUNTED:]]


def _frequent(
    texts: Sequence[Sequence[Sequence[str]]], length: int, shorter: Collection[Phrase]
) -> dict[Phrase, float]:
    """Phrases of this length with the variance of having them, summed over parts. Each is made of two `shorter` ones, which are frequent, too."""
    variances: dict[Phrase, float] = {}
    often: set[Phrase] = set()
    for part in texts:
        counts: Counter[Phrase] = Counter()
        for spoken in part:
            counts.update(set(_of_length(spoken, length, shorter)))
        often.update(phrase for phrase, count in counts.items() if count >= max(2.0, RARE * len(part)))
        for phrase, count in counts.items():
            share = count / len(part)
            variances[phrase] = variances.get(phrase, 0.0) + share * (1 - share)
    return {phrase: variances[phrase] for phrase in often}


def _of_length(spoken: Sequence[str], length: int, shorter: Collection[Phrase]) -> Iterator[Phrase]:
    for place in range(len(spoken) - length + 1):
        phrase = tuple(spoken[place : place + length])
        if length == 1 or (phrase[:-1] in shorter and phrase[1:] in shorter):
            yield phrase


class Finder:
    """Which of some phrases a completion uses: a tree of words, in which a phrase is a path that ends at its number."""

    def __init__(self, phrases: Sequence[Phrase]) -> None:
        self._root = _Node()
        for number, phrase in enumerate(phrases):
            node = self._root
            for word in phrase:
                node = node.after.setdefault(word, _Node())
            node.number = number

    def used(self, spoken: Sequence[str]) -> set[int]:
        """The places of the phrases that are in these words."""
        looked, numbers = ends(spoken), set()
        for place in range(len(looked)):
            node: _Node | None = self._root
            for word in looked[place : place + LONGEST]:
                if node is None or (node := node.after.get(word)) is None:
                    break
                if node.number is not None:
                    numbers.add(node.number)
        return numbers


class _Node:
    def __init__(self) -> None:
        self.after: dict[str, _Node] = {}
        self.number: int | None = None
