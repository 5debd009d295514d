"""Two texts and their difference: every letter is kept, and only what differs is marked."""

from hypothesis import given
from hypothesis import strategies as st

from dashboard.difference import Run, difference, words


@given(st.text(max_size=60))
def test_the_words_of_a_text_are_the_text(text: str) -> None:
    assert "".join(words(text)) == text


@given(st.text("ab <>\n\u202e", max_size=40), st.text("ab <>\n\u202e", max_size=40))
def test_the_runs_of_a_side_are_its_whole_text(left: str, right: str) -> None:
    found = difference(words(left), words(right))
    assert "".join(run.text for run in found.left) == left
    assert "".join(run.text for run in found.right) == right
    assert [run.text for run in found.left if run.shared] == [run.text for run in found.right if run.shared]
    assert 0 <= found.shared <= 1


def marked(runs: list[Run]) -> str:
    return "".join(run.text if run.shared else f"[{run.text}]" for run in runs)


def test_only_what_differs_is_marked() -> None:
    one = difference(words("the answer is 28."), words("the answer is 1."))
    assert marked(one.left) == "the answer is [28]."
    assert marked(one.right) == "the answer is [1]."


def test_a_space_between_two_differences_is_no_agreement() -> None:
    found = difference(words("one two three"), words("vier fünf sechs"))
    assert (marked(found.left), marked(found.right)) == ("[one two three]", "[vier fünf sechs]")
    assert found.shared == 0


def test_equal_texts_share_everything() -> None:
    assert difference(words("same"), words("same")).shared == 1
    assert difference([], []).shared == 1


def test_tokens_are_compared_as_they_are() -> None:
    found = difference(["ans", "wer", " 2", "8"], ["ans", "wer", " 2", "9"])
    assert marked(found.right) == "answer 2[9]"
