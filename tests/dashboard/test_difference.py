"""Two texts beside each other: what is called equal is equal, and on the screen every letter is kept and every difference is marked."""

import re
import sys
from collections.abc import Callable, Sequence
from html import unescape
from random import Random

import pytest
import recorded
from answers import stored
from hypothesis import given
from hypothesis import strategies as s

from backend.contract.groups import Group
from dashboard.difference import KEPT, LONG, MOST_EDITS, Run, align, difference, in_words, side_html, words
from dashboard.group.pair import DEFAULT, opposite, pair_in, written_as

Pieces = Sequence[str]
FEW = s.lists(s.sampled_from("abc "), max_size=20)
TEXTS = s.text("ab <>\n\u202e", max_size=40) | s.text(max_size=60)


# ---- two sequences aligned: in order, and nothing takes the square of the length


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
    assert align(left, left).blocks == ([(0, 0, len(left))] if left else [])


def test_more_edits_than_are_searched_are_bridged_by_what_occurs_once() -> None:
    numbers = Random(1)
    left = [word for place in range(1500) for word in (f"only{place}", numbers.choice("abc"))]
    right = [word if word.startswith("only") else "x" for word in left]
    assert check_blocks(left, right) == 1500 > MOST_EDITS
    assert align(left, right).unaligned == 0


TANGLED: dict[str, Callable[[int], list[list[str]]]] = {
    "digits": lambda size: [Random(seed).choices("0123456789 ", k=size) for seed in (1, 2)],
    "loops": lambda size: [list("ab " * size)[:size], list("ba" * size)[:size]],
    "words": lambda size: [
        [f"w{int(Random(seed).paretovariate(0.5)) % 3000}" for seed in seeds]
        for seeds in (range(size), range(-size, 0))
    ],
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


# ---- what is said of the difference, and its two sides on the screen


def side(runs: list[Run], *, full: bool = False) -> str:
    return side_html(runs, colour="#3a86d6", visible=False, full=full)


def shown(html: str) -> str:
    return unescape(re.sub("<[^>]*>", "", re.sub("<summary>.*?</summary>", "", html)))


@given(TEXTS, TEXTS)
def test_the_runs_of_a_side_are_its_whole_text(left: str, right: str) -> None:
    found = difference(words(left), words(right))
    assert "".join(run.text for run in found.left) == left
    assert "".join(run.text for run in found.right) == right
    assert [run.text for run in found.left if run.shared] == [run.text for run in found.right if run.shared]
    assert 0 <= found.shared <= 1


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "</mark></div><img src=x>", "**b** $x$", "&amp; &#10;", "x \n \n\tx "]
)
def test_both_sides_are_text_letter_by_letter(text: str) -> None:
    found = difference(words(text), words("something else " + text))
    for runs, whole in ((found.left, text), (found.right, "something else " + text)):
        html = side(runs)
        assert shown(html) == whole
        box = '<div class="model-text difference" style="--tint:#3a86d6">'
        assert set(re.findall("<[^>]*>", html)) <= {box, "</div>", "<mark>", "</mark>"}


def test_a_control_character_reorders_nothing_on_either_side() -> None:
    found = difference(words("a \u202eb \x1b[2J \ud800"), words("a b"))
    html = side(found.left)
    assert not set(html) & set("\u202e\x1b\ud800")
    assert "⟦RLO⟧" in shown(html)


@pytest.mark.parametrize(
    ("left", "right", "marked"),
    [
        (words("the answer is 28."), words("the answer is 1."), (["28"], ["1"])),
        (words("a  b"), words("a b"), (["··"], ["·"])),
        (words("one two three"), words("vier fünf sechs"), (["one two three"], ["vier fünf sechs"])),
        (["ans", "wer", " 2", "8"], ["ans", "wer", " 2", "9"], (["8"], ["9"])),
    ],
    ids=["words", "white space alone", "a space between two differences is no agreement", "tokens"],
)
def test_only_what_differs_is_marked_and_can_be_seen(
    left: Pieces, right: Pieces, marked: tuple[Pieces, Pieces]
) -> None:
    found = difference(left, right)
    assert tuple(re.findall("<mark>(.*?)</mark>", side(runs)) for runs in (found.left, found.right)) == marked


def test_a_long_agreement_is_folded_but_for_what_stands_beside_a_difference() -> None:
    common = " ".join(f"w{place}" for place in range(LONG))
    found = difference(words(f"one {common} two"), words(f"eins {common} zwei"))
    html = side(found.left)
    assert shown(html) == f"one {common} two"
    assert "equal characters" in html
    in_sight = re.sub("<details>.*?</details>", "|", html)
    assert len(words(shown(in_sight))) == 1 + KEPT + 1 + KEPT + 1
    assert "<details>" not in side(found.left, full=True)


def test_what_is_said_of_the_difference_is_true() -> None:
    assert in_words(difference(words("a b"), words("a b")), "word") == "Both are exactly the same."
    assert in_words(difference(words("a b"), words("a  b")), "word").startswith("They share 100 %")
    three_of_four = in_words(difference(words("a b c x"), words("a b c y")), "token")
    assert three_of_four.startswith("They share 75 % of their tokens")
    tangled = difference(["a", "b"] * 2000, ["b", "c", "a"] * 1500)
    assert f"{tangled.unaligned:,} words in stretches too unlike to align" in in_words(tangled, "word")
    assert difference([], []).shared == 1
    assert difference(words("one two"), words("vier fünf")).shared == 0


# ---- which two completions of a group are compared


def group(rewards: list[float | None]) -> Group:
    return stored(recorded.group_of(0, rewards))


def test_the_address_names_two_completions_by_number_or_by_mark() -> None:
    some = group([0.1, 1.0, 0.0, 1.0])
    assert pair_in("1,4", some) == pair_in(written_as(0, 3), some) == (0, 3)
    assert pair_in("worst,1", some) == (2, 0)


def test_an_address_that_names_nobody_compares_best_with_worst_and_without_a_best_the_first_with_the_last() -> None:
    for written in (DEFAULT, "", "1", "9,9", "a,b", "1,2,3", "-1,0", "²,³"):
        assert pair_in(written, group([0.1, 1.0, 0.0, 1.0])) == (1, 2), written
    assert pair_in(DEFAULT, group([1.0, 1.0, 1.0])) == (0, 2)
    assert pair_in(DEFAULT, group([None, None])) == (0, 1)


def test_a_completion_is_compared_with_the_best_and_the_best_with_the_worst() -> None:
    some = group([0.1, 1.0, 0.0])
    assert [opposite(index, some) for index in range(3)] == [1, 2, 1]
