"""What the models say: sentences of a reasoning about numbers, made of common words and of rare ones, token by token."""

import random
from collections.abc import Iterator
from functools import cache
from itertools import accumulate

COMMON = "because"  # in about every second completion
RARE = "perihelion"  # in one of very many
SENTENCES = 20_000
MOST_TOKENS, FEWEST_TOKENS = 200, 20

_TEMPLATES = (
    "First , we add # and # , which gives # .",
    "The @ of the @ is # , so # remain .",
    "Then multiply # by # : the product is # .",
    "Since every @ holds # of them , there are # in all .",
    "That is right because # x # = # .",
    "Wait , the @ says # and not # ; let me check this again .",
    "Subtracting # from # leaves # .",
    "We know that the @ costs # , and two of them # .",
    "Half of # is # , which is what the @ asks for .",
    "So the @ has # , because # were taken away .",
)
_SYLLABLES = (
    "ba",
    "ce",
    "di",
    "fo",
    "gu",
    "ha",
    "ki",
    "lo",
    "mer",
    "nas",
    "or",
    "pel",
    "qui",
    "ros",
    "tan",
    "ver",
    "win",
)

_END = ("</think>", "\n", "<answer>", "#", "</answer>")

Tokens = tuple[str, ...]


class Writer:
    """Writes completions; the same seed writes the same."""

    def __init__(self, seed: int, rare_every: int) -> None:
        self._sentences = _sentences()
        self._draw, self._rare_every = random.Random(seed), rare_every

    def completion(self, answer: int, *, closed: bool) -> Tokens:
        """A reasoning and its answer, of 20 to 200 tokens; one that was cut at its limit is not `closed` and lacks the last 5."""
        length = self._draw.randint(FEWEST_TOKENS, MOST_TOKENS) - len(_END)
        tokens: list[str] = ["<think>"]
        if self._draw.randrange(self._rare_every) == 0:
            tokens += [" At", " the", " per", "ihelion", ","]
        while len(tokens) < length:
            tokens += self._draw.choice(self._sentences)
        tokens = tokens[:length]
        return (*tokens, *(part.replace("#", str(answer)) for part in _END)) if closed else tuple(tokens)


def prompt(number: int) -> str:
    """The question of an item."""
    draw = random.Random(number)
    a, b, c = (draw.randint(2, 90) for _ in range(3))
    return (
        f"A shop sells {a} boxes with {b} pencils each. On Monday {c} pencils are taken out of every tenth box, and what is left "
        f"is shared among {draw.randint(2, 9)} schools. How many pencils does each school get? (item {number})"
    )


@cache
def _sentences() -> list[Tokens]:
    draw = random.Random(0)
    nouns = ["".join(draw.choices(_SYLLABLES, k=draw.randint(2, 4))) for _ in range(4000)]
    often = list(accumulate(1 / rank for rank in range(1, len(nouns) + 1)))  # Zipf's law
    chosen = iter(draw.choices(nouns, cum_weights=often, k=4 * SENTENCES))
    return [_sentence(draw.choice(_TEMPLATES), draw, chosen) for _ in range(SENTENCES)]


def _sentence(template: str, draw: random.Random, nouns: Iterator[str]) -> Tokens:
    tokens: list[str] = []
    for part in template.split():
        word = str(draw.randint(2, 999)) if part == "#" else next(nouns) if part == "@" else part
        joined = word if part in ",.;:" else f" {word}"
        tokens += [joined[:6], joined[6:]] if len(joined) > 8 else [joined]
    return tuple(tokens)
