"""Properties of one completion, as numbers: what can be seen of a text and of how it ended, without asking a model."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from backend.contract.conversation import Turn, stretches, without_middle
from backend.contract.properties import PropertyKind

READ = 20_000
"""Characters of a completion that are looked at; of a longer one both ends."""
_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
# a letter of these scripts is a word, and so is a sign
_WORD = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+|[^\w\s]")
_TAG = re.compile(r"</?[A-Za-z][\w-]{0,40}>")
_ANSWER = re.compile(r"<answer>|\\boxed\{|####|\banswer(?:\s+is\b|\s*:)", re.IGNORECASE)
_MARKUP = {
    "a code block": re.compile(r"^```", re.MULTILINE),
    "bold text": re.compile(r"\*\*\S[^*\n]*\*\*"),
    "a heading": re.compile(r"^#{1,6} ", re.MULTILINE),
    "a list": re.compile(r"^\s*(?:[-*•]|\d+[.)]) ", re.MULTILINE),
    "\\boxed{}": re.compile(r"\\boxed\{"),
}
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
_NO_ASCII_LETTERS = re.compile(r"[^A-Za-z]+")
_DIGIT = re.compile(r"\d")
_RUN = 3  # words in a row that count as repeated


class Property(NamedTuple):
    """What is looked at; `of` names the phrase, tag, tool or script."""

    kind: PropertyKind
    of: str | None = None

    @property
    def title(self) -> str:
        """In words, as they follow “the reward goes with”."""
        return _TITLES[self.kind].format(self.of)

    @property
    def binary(self) -> bool:
        """Whether a completion either has it or not."""
        return self.kind in _BINARY


_TITLES: dict[PropertyKind, str] = {
    "tokens": "the number of tokens",
    "characters": "the number of characters",
    "cut": "being cut at the token limit",
    "empty": "an empty text",
    "digits": "the number of digits",
    "digit_share": "the share of digits in the text",
    "repetition": "the share of words that repeat earlier ones",
    "prompt_repeated": "the share of the prompt that is repeated",
    "prompt_share": "the share of the text that repeats the prompt",
    "script": "the share of {} letters",
    "other_script": "another script than the prompt's",
    "answer_marked": "a marked answer",
    "answer_place": "the place of the answer in the text",
    "tag": "the tag {}",
    "markup": "{}",
    "tool_calls": "the number of tool calls",
    "tool": "a call of {}",
    "tool_failed": "the number of failed tool calls",
    "turns": "the number of turns",
    "phrase": "the phrase “{}”",
}
_BINARY: frozenset[PropertyKind] = frozenset(
    {"cut", "empty", "other_script", "answer_marked", "tag", "markup", "tool", "phrase"}
)


@dataclass(frozen=True)
class Completion:
    """A completion as it was stored, and its prompt as the task words it."""

    text: str
    turns: Sequence[Turn]
    token_count: int
    finish_reason: str
    prompt: str

    @property
    def said(self) -> str:
        """What the policy said: of a conversation its own turns alone."""
        if not self.turns:
            return self.text
        return "\n".join(part for turn, part in stretches(self.text, self.turns) if of_the_policy(turn))


def of_the_policy(turn: Turn) -> bool:
    """Whether the policy wrote a turn."""
    return turn.role == "assistant"


def words(text: str) -> list[str]:
    """Its words, in small letters and without tags."""
    return _WORD.findall(_TAG.sub(" ", text).lower())


def measured(one: Completion, said: str, spoken: Sequence[str]) -> Iterator[tuple[Property, float]]:
    """Its properties that are not 0, but for phrases. `said` is the policy's text, perhaps without its middle; `spoken` has its words."""
    yield Property("tokens"), float(one.token_count)
    yield Property("characters"), float(len(said))
    yield Property("cut"), float(one.finish_reason == "length")
    yield Property("empty"), float(not said.strip())
    digits = len(_DIGIT.findall(said))
    yield Property("digits"), float(digits)
    yield Property("digit_share"), digits / max(1, len(said))
    yield Property("repetition"), repetition(spoken)
    (asked, theirs), runs = _of_prompt(one.prompt), _runs(spoken)
    yield Property("prompt_repeated"), len(asked & runs) / max(1, len(asked))
    yield Property("prompt_share"), len(asked & runs) / max(1, len(runs))
    scripts = _scripts(said)
    for script, share in scripts.items():
        yield Property("script", script), share
    other = bool(scripts and theirs) and max(scripts, key=scripts.__getitem__) not in theirs
    yield Property("other_script"), float(other)
    places = [match.start() for match in _ANSWER.finditer(said)]
    yield Property("answer_marked"), float(bool(places))
    yield Property("answer_place"), places[-1] / max(1, len(said)) if places else float("nan")
    for tag in {*_TAG.findall(said)}:
        yield Property("tag", tag), 1.0
    for name, form in _MARKUP.items():
        yield Property("markup", name), float(form.search(said) is not None)
    if one.turns:
        calls = [turn.tool for turn in one.turns if turn.tool and of_the_policy(turn)]
        yield Property("tool_calls"), float(len(calls))
        yield Property("turns"), float(sum(of_the_policy(turn) for turn in one.turns))
        yield Property("tool_failed"), float(sum(turn.failed for turn in one.turns))
        for tool in {*calls}:
            yield Property("tool", tool), 1.0


def repetition(spoken: Sequence[str]) -> float:
    """The share of the runs of three words that stood in the text before; 0 for fewer words."""
    count = len(spoken) - _RUN + 1
    return 1 - len(_runs(spoken)) / count if count > 0 else 0.0


def _runs(spoken: Sequence[str]) -> set[tuple[str, ...]]:
    """Each run of three words; of a shorter text, all of it."""
    if len(spoken) < _RUN:
        return {tuple(spoken)} if spoken else set()
    return set(zip(spoken, spoken[1:], spoken[2:], strict=False))


def _scripts(text: str) -> dict[str, float]:
    """The share of each script among the letters."""
    counts = Counter(_script(sign) for sign in _BEYOND_ASCII.findall(text) if sign.isalpha())
    if latin := len(_NO_ASCII_LETTERS.sub("", text)):
        counts["Latin"] += latin
    letters = counts.total()
    return {script: count / letters for script, count in counts.items()}


@lru_cache(maxsize=4096)  # each prompt is looked at with all of its completions
def _of_prompt(prompt: str) -> tuple[set[tuple[str, ...]], dict[str, float]]:
    """Its runs of three words, and its scripts."""
    read = without_middle(prompt, READ)
    return _runs(words(read)), _scripts(read)


@lru_cache(maxsize=20_000)
def _script(letter: str) -> str:
    """The first word of a letter's name, which is its script: Latin, Cyrillic, Cjk, Hiragana."""
    first = unicodedata.name(letter, "Other").split()[0].capitalize()
    return {"Cjk": "Chinese"}.get(first, first)
