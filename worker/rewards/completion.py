"""What a reward function sees of one completion."""

from dataclasses import dataclass
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
    """A completion's text and length in tokens, the reference answer, and the task's own verifier."""

    text: str
    token_count: int
    answer: str | None
    verifier: Verifier
