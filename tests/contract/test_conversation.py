"""A conversation is the text of its completion, cut into turns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from backend.contract.conversation import Turn, joined, length_of, shortened, stretches
from backend.contract.groups import CompletionData

WORDS = st.lists(st.text(max_size=40), min_size=1, max_size=12)


def turns(words: list[str]) -> list[Turn]:
    return [Turn(role="assistant", length=len(word)) for word in words]


@given(WORDS)
def test_each_turn_has_its_text_and_the_text_is_theirs(words: list[str]) -> None:
    text = joined(words)
    assert [part for _, part in stretches(text, turns(words))] == words
    assert length_of(turns(words)) == len(text)


@given(WORDS, st.integers(64, 200))
def test_what_is_too_long_keeps_both_ends_of_each_turn(words: list[str], most: int) -> None:
    text, kept = shortened(joined(words), turns(words), most)
    assert len(text) <= most
    assert len(kept) == len(words)
    assert length_of(kept) == len(text)
    for (_, part), word in zip(stretches(text, kept), words, strict=True):
        begins, _, ends = part.partition("…") if part != word else (word, "", "")
        assert word.startswith(begins)
        assert word.endswith(ends)


@given(st.integers(1, 100), st.integers(1, 100))
def test_of_more_turns_than_there_is_room_for_the_first_and_the_last_are_kept(count: int, most: int) -> None:
    words = [f"{one:04}" for one in range(count)]
    text, kept = shortened(joined(words), turns(words), most)
    assert len(text) <= most
    assert length_of(kept) == len(text)
    if len(kept) < count:
        assert 4 * len(kept) <= most + 1 or len(kept) == 1
    if most >= 7 and count > 1:
        parts = [part for _, part in stretches(text, kept)]
        assert (parts[0][0], parts[-1][-1]) == ("0", words[-1][-1])


def test_turns_that_are_not_the_text_are_refused() -> None:
    said = {"index": 0, "token_count": 1, "finish_reason": "stop"}
    assert CompletionData(**said, text="a\nb", turns=turns(["a", "b"])).turns
    with pytest.raises(ValidationError, match="has 2 characters, and its turns need 3"):
        CompletionData(**said, text="ab", turns=turns(["a", "b"]))
