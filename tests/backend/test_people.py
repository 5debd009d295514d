"""Bookmarks, thumbs and choices: kept as they were said, in place of what was said before."""

import pytest
from acting import GRPO, Actor, completion, group
from serving import Backend

from backend.contract.client import ApiError
from backend.contract.groups import Group
from backend.contract.protocol import Finish

HOSTILE = "<script>alert(1)</script> ![x](http://evil.example) \x1b[31m \u202e abc \x07 \ud800 end"
STORED = HOSTILE.replace("\ud800", "\ufffd")  # half of a surrogate pair has no UTF-8


@pytest.fixture
def judged(backend: Backend) -> Group:
    """A group of four, the first two with equal rewards; another one follows, whose two texts are equal."""
    run = backend.client.create_run(GRPO)
    actor = Actor(backend.client).begin()
    same = group(1, prompt_id="b").model_copy(update={"completions": [completion(0, "x"), completion(1, "x", 0.0)]})
    actor.report(0, groups=[group(rewards=(1.0, 1.0, 0.0, None)), same])
    assert actor.run_id == run.id
    return backend.client.group(backend.client.groups(run.id).items[0].id)


def ids(of: Group) -> list[int]:
    return [one.id for one in of.completions]


def test_a_bookmark_keeps_its_newest_note_and_can_be_taken_back(backend: Backend, judged: Group) -> None:
    people = backend.client.people
    assert people.bookmark(judged.id).note == ""
    assert people.bookmark(judged.id, HOSTILE).note == STORED
    shown = backend.client.group(judged.id).bookmark
    assert shown is not None
    assert shown.note == STORED
    bookmarked = backend.client.groups(judged.run_id, bookmarked=True).items
    assert [one.id for one in bookmarked] == [judged.id]
    people.remove_bookmark(judged.id)
    people.remove_bookmark(judged.id)
    assert backend.client.group(judged.id).bookmark is None


def test_a_thumb_is_up_down_or_neither(backend: Backend, judged: Group) -> None:
    one, other = ids(judged)[:2]
    people = backend.client.people
    people.thumb(one, "up")
    people.thumb(other, "up")
    people.thumb(other, "down")
    assert [each.thumb for each in backend.client.group(judged.id).completions] == ["up", "down", None, None]
    people.thumb(one, None)
    people.thumb(one, None)
    assert [each.thumb for each in backend.client.group(judged.id).completions] == [None, "down", None, None]


def test_a_choice_replaces_its_opposite_and_is_made_once(backend: Backend, judged: Group) -> None:
    a, b, c, _ = ids(judged)
    people = backend.client.people
    first = people.choose(judged.id, better=a, worse=b)
    assert (first.group_id, first.better_index, first.worse_index) == (judged.id, 0, 1)
    assert people.choose(judged.id, better=a, worse=b) == first
    second = people.choose(judged.id, better=c, worse=a)
    turned = people.choose(judged.id, better=b, worse=a)
    assert people.choices(judged.id) == [second, turned]
    people.remove_choice(second.id)
    assert people.choices(judged.id) == [turned]


def test_what_cannot_be_judged_is_refused_in_words(backend: Backend, judged: Group) -> None:
    people = backend.client.people
    one = ids(judged)[0]
    stranger = ids(backend.client.group(judged.id + 1))[0]
    with pytest.raises(ApiError, match=f"worse: {stranger} is not a completion of group {judged.id}"):
        people.choose(judged.id, better=one, worse=stranger)
    with pytest.raises(ApiError, match="must be another completion"):
        people.choose(judged.id, better=one, worse=one)
    for ask in (
        lambda: people.bookmark(99),
        lambda: people.remove_bookmark(99),
        lambda: people.thumb(99, "up"),
        lambda: people.choose(99, better=1, worse=2),
        lambda: people.choices(99),
        lambda: people.remove_choice(99),
        lambda: people.agreement(99),
        lambda: people.keep_preferences(99),
        lambda: list(people.preferences(99)),
    ):
        with pytest.raises(ApiError, match="There is no") as refused:
            ask()
        assert refused.value.status == 404


def test_a_deleted_run_takes_what_was_said_of_it_along(backend: Backend, judged: Group) -> None:
    a, b, *_ = ids(judged)
    people = backend.client.people
    people.bookmark(judged.id, "look")
    people.thumb(a, "up")
    people.choose(judged.id, better=a, worse=b)
    backend.client.finish(judged.run_id, Finish(attempt=1, outcome="finished"))
    backend.client.delete_run(judged.run_id)
    with pytest.raises(ApiError, match="There is no group"):
        people.choices(judged.id)


def test_the_reward_agrees_disagrees_or_says_nothing(backend: Backend, judged: Group) -> None:
    a, b, c, d = ids(judged)  # rewards 1, 1, 0, none
    people = backend.client.people
    people.choose(judged.id, better=a, worse=c)  # agrees
    people.choose(judged.id, better=a, worse=b)  # equal
    people.choose(judged.id, better=a, worse=d)  # unscored
    people.choose(judged.id, better=c, worse=b)  # disagrees
    found = people.agreement(judged.run_id)
    assert (found.choices, found.pairs, found.agreed, found.disagreed, found.undecided) == (4, 4, 1, 1, 2)
    against = found.disagreements[0]
    assert (against.group_id, against.better_index, against.worse_index) == (judged.id, 2, 1)
    assert (against.better_reward, against.worse_reward) == (0.0, 1.0)


def test_thumbs_make_pairs_where_no_choice_speaks_of_the_two_and_two_equal_texts_are_none(
    backend: Backend, judged: Group
) -> None:
    a, b, c, _ = ids(judged)
    people = backend.client.people
    people.thumb(a, "up")
    people.thumb(b, "up")
    people.thumb(c, "down")
    found = people.agreement(judged.run_id)
    assert (found.thumbs_up, found.thumbs_down, found.pairs, found.agreed) == (2, 1, 2, 2)
    people.choose(judged.id, better=c, worse=a)
    found = people.agreement(judged.run_id)
    assert (found.choices, found.pairs, found.agreed, found.disagreed) == (1, 2, 1, 1)
    one, other = ids(backend.client.group(judged.id + 1))
    people.thumb(other, "down")  # a thumb down in another group has nobody to lose to
    assert people.agreement(judged.run_id).pairs == 2
    people.choose(judged.id + 1, better=one, worse=other)
    agreement = people.agreement(judged.run_id)
    assert (agreement.choices, agreement.pairs) == (2, 2), "two equal texts are no pair"
