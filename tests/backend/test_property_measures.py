"""What is seen of a completion: each property on a text that has it, and phrases that are found without being given."""

import math

import pytest

from backend.contract.conversation import Turn
from backend.properties.measures import Completion, Property, measured, words
from backend.properties.phrases import CANDIDATES, Finder, found


def seen(
    text: str, *, prompt: str = "Add 12 and 30 please", turns: list[Turn] | None = None, finish: str = "stop"
) -> dict[Property, float]:
    whole = Completion(text=text, turns=turns or [], token_count=7, finish_reason=finish, prompt=prompt)
    return dict(measured(whole, whole.said, words(whole.said)))


@pytest.mark.parametrize(
    ("text", "known", "value"),
    [
        ("four", Property("tokens"), 7),
        ("four", Property("characters"), 4),
        ("a1b22", Property("digits"), 3),
        ("a1b22", Property("digit_share"), 0.6),
        ("٣ and 4", Property("digits"), 2),
        ("   \n", Property("empty"), 1),
        ("", Property("empty"), 1),
        ("a b c a b c a b c", Property("repetition"), 1 - 3 / 7),
        ("one two", Property("repetition"), 0),
        ("We add 12 and 30, please.", Property("prompt_repeated"), 2 / 3),
        ("add 12 and 30 please", Property("prompt_share"), 1),
        ("да, yes", Property("script", "Cyrillic"), 0.4),
        ("答えは四", Property("script", "Chinese"), 0.5),
        ("да", Property("other_script"), 1),
        ("yes", Property("other_script"), 0),
        ("<answer>4</answer>", Property("tag", "<answer>"), 1),
        ("so </think> four", Property("tag", "</think>"), 1),
        ("The answer is 4", Property("answer_marked"), 1),
        ("1234 #### 4", Property("answer_place"), 5 / 11),
        ("```\nx\n```", Property("markup", "a code block"), 1),
        ("- one\n- two", Property("markup", "a list"), 1),
    ],
)
def test_a_property_is_measured(text: str, known: Property, value: float) -> None:
    assert seen(text)[known] == pytest.approx(value)


def test_being_cut_is_seen_by_how_it_ended_and_without_a_marked_answer_it_has_no_place() -> None:
    assert [seen("four", finish=how)[Property("cut")] for how in ("length", "stop")] == [1, 0]
    assert math.isnan(seen("four")[Property("answer_place")])


def test_of_a_conversation_only_what_the_policy_said_counts() -> None:
    said, answer, end = "search(cats)", "1234567 results", "there are many"
    turns = [
        Turn(role="assistant", length=len(said), tool="search"),
        Turn(role="tool", length=len(answer), tool="search", failed=True),
        Turn(role="assistant", length=len(end)),
    ]
    one = seen("\n".join((said, answer, end)), turns=turns)
    counted = {"digits": 0, "tool_calls": 1, "tool_failed": 1, "turns": 2}
    assert {name: one[Property(name)] for name in counted} == counted
    assert one[Property("tool", "search")] == 1


def test_every_property_has_words() -> None:
    titles = {one.title for one in seen("As an expert: **four** <answer>4</answer> ```", turns=[])}
    assert titles >= {"the number of tokens", "the tag <answer>", "bold text"}


def test_phrases_are_found_that_some_use_and_numbers_and_signs_alone_are_none() -> None:
    some = [words("well as an expert I say it is so"), words("I would say that it is so")] * 20
    phrases = found([some, some])
    assert ("as", "an", "expert") in phrases
    assert ("it", "is", "so") not in phrases[:5], "all use it"
    assert len(phrases) <= CANDIDATES
    finder = Finder(phrases)
    assert ("as", "an", "expert") in [phrases[place] for place in finder.used(words("He spoke as an expert."))]
    assert ("as", "an", "expert") not in [phrases[place] for place in finder.used(words("as an export"))]
    numbers = found([[words("12 + 30 = 42 , then"), words("no")] * 20])
    assert all(any(any(map(str.isalpha, word)) for word in phrase) and phrase[-1] != "," for phrase in numbers)
