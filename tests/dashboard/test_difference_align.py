"""Two sequences aligned: what is called equal is equal, in order, and nothing takes the square of the length."""

import sys
from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.difference import MOST_EDITS, align

Pieces = Sequence[str]
FEW = st.lists(st.sampled_from("abc "), max_size=20)


def longest_common(left: Pieces, right: Pieces) -> int:
    """The length of the longest common subsequence, by the table that takes the square."""
    row = [0] * (len(right) + 1)
    for piece in left:
        corner = 0
        for j, other in enumerate(right, 1):
            above = row[j]
            row[j] = corner + 1 if piece == other else max(above, row[j - 1])
            corner = above
    return row[-1]


def check_blocks(left: Pieces, right: Pieces) -> int:
    """Every block is of equal pieces, behind the one before it; returns how many pieces are in one."""
    end = (0, 0)
    found = align(left, right)
    for block in found.blocks:
        assert block.size > 0
        assert block.left >= end[0]
        assert block.right >= end[1]
        assert left[block.left : block.left + block.size] == right[block.right : block.right + block.size]
        assert (block.left, block.right) != end or end == (0, 0)
        end = block.left + block.size, block.right + block.size
    return sum(block.size for block in found.blocks)


@given(FEW, FEW)
def test_short_sequences_share_as_much_as_can_be_shared(left: list[str], right: list[str]) -> None:
    assert check_blocks(left, right) == longest_common(left, right)
    assert align(left, right).unaligned == 0


def test_a_text_shares_all_of_itself() -> None:
    assert align("abcabc", "abcabc").blocks == [(0, 0, 6)]
    assert align("", "").blocks == []
    assert align("abc", "").blocks == []


def test_one_word_in_the_middle_of_a_long_text_is_the_only_difference() -> None:
    left = [f"w{place % 50}" for place in range(5000)]
    right = [*left[:2500], "other", *left[2501:]]
    assert align(left, right).blocks == [(0, 0, 2500), (2501, 2501, 2499)]


def test_more_edits_than_are_searched_are_bridged_by_what_occurs_once() -> None:
    numbers = Random(1)
    left = [word for place in range(1500) for word in (f"only{place}", numbers.choice("abc"))]
    right = [word if word.startswith("only") else "x" for word in left]
    found = align(left, right)
    assert check_blocks(left, right) == 1500 > MOST_EDITS
    assert found.unaligned == 0


def repeated(words: str, size: int) -> list[str]:
    return [words[place % len(words)] for place in range(size)]


def drawn(letters: str, size: int, seed: int) -> list[str]:
    numbers = Random(seed)
    return [numbers.choice(letters) for _ in range(size)]


TANGLED: dict[str, Callable[[int], tuple[list[str], list[str]]]] = {
    "digits": lambda size: (drawn("0123456789 ", size, 1), drawn("0123456789 ", size, 2)),
    "loops": lambda size: (repeated("ab ", size), repeated("ba", size)),
    "words": lambda size: (
        [f"w{int(Random(place).paretovariate(0.5)) % 3000}" for place in range(size)],
        [f"w{int(Random(-place - 1).paretovariate(0.5)) % 3000}" for place in range(size)],
    ),
}


def steps_of(left: Pieces, right: Pieces) -> int:
    """How many lines of the aligner are run: a measure of its work that no busy machine changes."""
    steps = 0

    def trace(frame: object, event: str, argument: object) -> Callable[..., object]:
        nonlocal steps
        steps += event == "line"
        return trace

    sys.settrace(trace)
    try:
        align(left, right)
    finally:
        sys.settrace(None)
    return steps


@pytest.mark.slow
@pytest.mark.parametrize("kind", TANGLED)
def test_twice_the_text_is_about_twice_the_work(kind: str) -> None:
    small, large = (steps_of(*TANGLED[kind](size)) for size in (2000, 8000))
    assert large < 4 * 2.5 * small
    assert check_blocks(*TANGLED[kind](2000)) >= 0


def test_what_is_too_tangled_is_called_different_and_counted() -> None:
    left, right = TANGLED["loops"](3000)
    found = align(left, right)
    assert check_blocks(left, right) + found.unaligned / 2 <= 3000
    assert found.unaligned > 0
