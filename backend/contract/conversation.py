"""A completion in which several spoke: whose each stretch of its text is, and whether the policy is trained on it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from pydantic import Field

from backend.contract.base import Count, Record, ShortText

BETWEEN = "\n"
"""Stands between two stretches, and belongs to neither."""
MOST_TURNS = 4096


class Turn(Record):
    """A stretch of a completion's text, `length` characters long, that one role said."""

    role: Annotated[ShortText, Field(min_length=1)]  # assistant, tool, user, system, or what a trainer calls it
    length: Count
    tool: ShortText | None = None  # of the assistant: the tool that it calls; of a tool: the one that answers
    trained: bool = True
    reward: float | None = None
    policy_version: ShortText | None = None  # of the weights that wrote it
    failed: bool = False  # a tool's answer that is an error


Turns = Annotated[list[Turn], Field(max_length=MOST_TURNS)]


def joined(stretches: Iterable[str]) -> str:
    """The text of a completion, of those of its turns."""
    return BETWEEN.join(stretches)


def stretches(text: str, turns: Sequence[Turn]) -> Iterator[tuple[Turn, str]]:
    """Each turn with its text, in order."""
    place = 0
    for turn in turns:
        yield turn, text[place : place + turn.length]
        place += turn.length + len(BETWEEN)


def length_of(turns: Sequence[Turn]) -> int:
    """How long the text of these turns is, in characters."""
    return sum(turn.length for turn in turns) + len(BETWEEN) * (len(turns) - 1)


def without_middle(text: str, most: int) -> str:
    """The text, or its beginning and its end with a sign between them: at most `most` characters."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[len(text) - half :]}"


_LEAST = 3  # characters of a turn that is kept, which are one of either end


def shortened(text: str, turns: Sequence[Turn], most: int) -> tuple[str, list[Turn]]:
    """A text of at most `most` characters, at least 1, and its turns: of a longer one the ends are kept, or those of each turn.

    Where nothing would be left of each turn, the first and the last ones are kept.
    """
    if len(text) <= most or not turns:
        return without_middle(text, most), list(turns)
    there = list(stretches(text, turns))
    if (count := max(1, (most + len(BETWEEN)) // (_LEAST + len(BETWEEN)))) < len(there):
        there = there[: count - count // 2] + there[len(there) - count // 2 :]
    each = (most + len(BETWEEN)) // len(there) - len(BETWEEN)
    kept = [(turn, without_middle(part, each)) for turn, part in there]
    return joined(part for _, part in kept), [turn.model_copy(update={"length": len(part)}) for turn, part in kept]
