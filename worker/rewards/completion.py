"""What a reward function sees of one completion."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict


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
