"""The pure reward functions, and the table that finds them by their kind."""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypedDict

from worker.rewards.answers import find_answer, reaches, same_number


class Verifier(TypedDict, total=False):
    """How a task checks an answer: `kind` is exact, numeric, countdown or reasoning_gym, the rest belongs to the kind."""

    kind: str
    numbers: list[int]
    target: int
    dataset: str
    entry: str


@dataclass(frozen=True)
class Completion:
    """A completion's text and length in tokens, the reference answer, and the task's own verifier.

    `prompt` (chat messages, or a raw text) and `columns` (the row of a data set) are there for the functions that read them.
    """

    text: str
    token_count: int
    answer: str | None
    verifier: Verifier
    prompt: str | Sequence[Mapping[str, str]] = ""
    columns: Mapping[str, object] = field(default_factory=dict)


class BrokenContract(Exception):
    """A function returned something else than a score: what was expected, and what came instead."""

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(f"expected {expected}, got {got}")
        self.expected, self.got = expected, got


def in_words(value: object) -> str:
    """A value's type, and its length where it has one."""
    length = f" of length {len(value)}" if isinstance(value, str | list | tuple | dict) else ""
    return f"{type(value).__name__}{length}"


def correctness_score(completion: Completion, *, extract: str, match: str) -> float:
    """1 if the extracted answer matches, else 0; a task with a verifier of its own may give a part of 1.

    Raises ValueError where there is nothing to compare with: that is the data's fault, not the completion's.
    """
    answer = find_answer(completion.text, extract)
    how = completion.verifier["kind"] if match == "task" else match
    if answer is None:
        return 0.0
    match how:
        case "countdown":
            return float(reaches(answer, completion.verifier["numbers"], completion.verifier["target"]))
        case "reasoning_gym":
            from worker.rewards.gym import gym_score  # seconds to import, and few runs need it

            return gym_score(answer, completion.verifier["dataset"], completion.verifier["entry"])
        case "exact":
            return float(answer == _reference(completion).strip())
        case "numeric":
            return float(same_number(answer, _reference(completion)))
        case "symbolic":
            from worker.rewards.symbolic import same_value  # the same

            return float(same_value(answer, _reference(completion)))
        case _:
            raise ValueError(f"there is no way {how!r} to compare answers")


def _reference(completion: Completion) -> str:
    if completion.answer is None:
        raise ValueError("the item has no reference answer to compare with")
    return completion.answer


def format_score(completion: Completion, *, tags: Sequence[str]) -> float:
    """1 if the text is <a>…</a><b>…</b> for the tags a, b, … in order, with only white space outside them; else 0."""
    text = completion.text
    marks = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]
    if any(text.count(mark) != 1 for mark in marks):
        return 0.0
    end = 0
    for place, mark in enumerate(marks):
        start = text.find(mark, end)
        is_opening = place % 2 == 0
        if start < 0 or (is_opening and text[end:start].strip()):
            return 0.0
        end = start + len(mark)
    return 0.0 if text[end:].strip() else 1.0


def length_score(completion: Completion, *, unit: str, minimum: int, maximum: int, ramp: int) -> float:
    """1 from `minimum` to `maximum`, falling in a straight line to 0 at `ramp` outside; `unit` is what is counted."""
    match unit:
        case "tokens":
            length = completion.token_count
        case "words":
            length = len(completion.text.split())
        case "characters":
            length = len(completion.text)
        case _:
            raise ValueError(f"a length has no unit {unit!r}")
    outside = max(minimum - length, length - maximum, 0)
    return max(0.0, 1 - outside / ramp)


def pattern_score(completion: Completion, *, syntax: str, patterns: Sequence[str], case_sensitive: bool) -> float:
    """The share of `patterns` found in the text.

    A regular expression may backtrack for ever: it holds the interpreter all the while, and only the end of its
    process stops it.
    """
    if syntax == "keyword":
        text = completion.text if case_sensitive else completion.text.casefold()
        found = [(pattern if case_sensitive else pattern.casefold()) in text for pattern in patterns]
    else:
        flags = re.NOFLAG if case_sensitive else re.IGNORECASE
        found = [re.search(pattern, completion.text, flags) is not None for pattern in patterns]
    return sum(found) / len(found)


Scores = Callable[..., object]


class FunctionUnavailable(Exception):
    """The module cannot be imported, or it has no such function."""


@cache
def load_function(name: str) -> Scores:
    """The function that `module:function` names. Raises FunctionUnavailable."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except BaseException as error:  # somebody's module: its import may end in anything
        raise FunctionUnavailable(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise FunctionUnavailable(f"{name} is not a function but a value of type {in_words(found)}")
    return found  # type: ignore[no-any-return]  # what it returns is checked at every call


def python_score(completion: Completion, *, function: str) -> object:
    """What `function` gives one completion: the one number in the list that it returns.

    A chat is given as its messages and the completion as the assistant's; a raw prompt and its completion are texts. Every
    column of the item's row is a list of one, like them. Raises BrokenContract for anything but a list of one.
    """
    columns: Mapping[str, object] = {"answer": completion.answer, **completion.columns}
    text = completion.text
    answer = text if isinstance(completion.prompt, str) else [{"role": "assistant", "content": text}]
    given = {name: [value] for name, value in columns.items()} | {
        "prompts": [completion.prompt],
        "completions": [answer],
    }
    scores = load_function(function)(**given)
    if not isinstance(scores, list | tuple) or len(scores) != 1:
        raise BrokenContract(
            "a list of one number, since it is given one completion", f"a value of type {in_words(scores)}"
        )
    return scores[0]


FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "correctness": correctness_score,
    "format": format_score,
    "length": length_score,
    "pattern": pattern_score,
    "python": python_score,
}
