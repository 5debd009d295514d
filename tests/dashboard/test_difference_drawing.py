"""A difference on the screen: text as text on both sides, and every difference to be seen."""

import re
from html import unescape

import pytest
import recorded

from backend.contract.groups import Group
from dashboard.difference import KEPT, LONG, Run, difference, in_words, side_html, words
from dashboard.group.pair import DEFAULT, opposite, pair_in, written_as


def side(runs: list[Run], *, visible: bool = False, full: bool = False) -> str:
    return side_html(runs, colour="#3a86d6", visible=visible, full=full)


def shown(html: str) -> str:
    return unescape(re.sub("<[^>]*>", "", re.sub("<summary>.*?</summary>", "", html)))


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "</mark></div><img src=x>", "**b** $x$", "&amp; &#10;", "x \n \n\tx "]
)
def test_both_sides_are_text_letter_by_letter(text: str) -> None:
    found = difference(words(text), words("something else " + text))
    for runs, whole in ((found.left, text), (found.right, "something else " + text)):
        html = side(runs)
        assert shown(html) == whole
        assert set(re.findall("<[^>]*>", html)) <= {
            '<div class="model-text difference" style="--tint:#3a86d6">',
            "</div>",
            "<mark>",
            "</mark>",
        }


def test_a_control_character_reorders_nothing_on_either_side() -> None:
    found = difference(words("a \u202eb \x1b[2J \ud800"), words("a b"))
    html = side(found.left)
    assert not set(html) & set("\u202e\x1b\ud800")
    assert "⟦RLO⟧" in shown(html)


def test_only_what_differs_is_marked() -> None:
    found = difference(words("the answer is 28"), words("the answer is 1"))
    assert re.findall("<mark>(.*?)</mark>", side(found.left)) == ["28"]
    assert re.findall("<mark>(.*?)</mark>", side(found.right)) == ["1"]


def test_a_difference_in_white_space_alone_can_be_seen() -> None:
    found = difference(words("a  b"), words("a b"))
    assert re.findall("<mark>(.*?)</mark>", side(found.left)) == ["··"]
    assert re.findall("<mark>(.*?)</mark>", side(found.right)) == ["·"]


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
    assert in_words(difference(words("a b c x"), words("a b c y")), "token").startswith(
        "They share 75 % of their tokens"
    )
    tangled = difference(["a", "b"] * 2000, ["b", "c", "a"] * 1500)
    assert f"{tangled.unaligned:,} words in stretches too unlike to align" in in_words(tangled, "word")


def group(rewards: list[float | None]) -> Group:
    known = recorded.group_of(0, rewards).model_dump()
    for one in known["completions"]:
        one["id"] = one["index"] + 100
    return Group.model_validate(known | {"id": 1, "run_id": 1, "attempt": 1, "step": 0})


def test_the_address_names_two_completions_by_number_or_by_mark() -> None:
    some = group([0.1, 1.0, 0.0, 1.0])
    assert pair_in(DEFAULT, some) == (1, 2)
    assert pair_in("1,4", some) == (0, 3)
    assert pair_in("worst,1", some) == (2, 0)
    assert pair_in(written_as(0, 3), some) == (0, 3)


@pytest.mark.parametrize("written", ["", "1", "9,9", "a,b", "1,2,3", "-1,0", "²,³"])
def test_an_address_that_names_nobody_compares_best_with_worst(written: str) -> None:
    assert pair_in(written, group([0.1, 1.0, 0.0, 1.0])) == (1, 2)


def test_where_nobody_is_best_the_first_is_compared_with_the_last() -> None:
    assert pair_in(DEFAULT, group([1.0, 1.0, 1.0])) == (0, 2)
    assert pair_in(DEFAULT, group([None, None])) == (0, 1)


def test_a_completion_is_compared_with_the_best_and_the_best_with_the_worst() -> None:
    some = group([0.1, 1.0, 0.0])
    assert [opposite(index, some) for index in range(3)] == [1, 2, 1]
