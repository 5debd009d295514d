"""Bookmarks, thumbs and choices: kept as they were said, in place of what was said before, and their agreement with the reward counted."""

from typing import Any

import pytest
from acting import api_error, began, completion, group
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import Backend

from backend.contract.client import ApiError
from backend.contract.groups import Group
from backend.contract.protocol import Finish
from backend.people.agreement import SHOWN, agreement, by_group
from backend.people.pairs import Judgements, Pair, Place, Side, ThumbedGroup, lines

HOSTILE = "<script>alert(1)</script> ![x](http://evil.example) \x1b[31m \u202e abc \x07 \ud800 end"
STORED = HOSTILE.replace("\ud800", "\ufffd")  # half of a surrogate pair has no UTF-8


@pytest.fixture
def judged(backend: Backend) -> Group:
    """A group of four, the first two with equal rewards; another one follows, whose two texts are equal."""
    actor = began(backend.client)
    same = group(1, prompt_id="b").model_copy(update={"completions": [completion(0, "x"), completion(1, "x", 0.0)]})
    actor.report(0, groups=[group(rewards=(1.0, 1.0, 0.0, None)), same])
    return backend.client.group(backend.client.groups(actor.run_id).items[0].id)


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
        with api_error(404, match="There is no"):
            ask()


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


def test_thumbs_make_pairs_where_no_choice_speaks_and_two_equal_texts_are_none(backend: Backend, judged: Group) -> None:
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
    found = people.agreement(judged.run_id)
    assert (found.choices, found.pairs) == (2, 2), "two equal texts are no pair"


# ---- the agreement is counted, and comes to what going through each pair would

CONFIGS: list[dict[str, Any]] = [{}, {"prompt_format": "raw"}]
REWARDS = st.sampled_from([None, 0.0, 0.5, 1.0])
TEXTS = st.sampled_from(["", "a", "b", "c"])
THUMBS = st.sampled_from(["up", "down", None])


@st.composite
def whatever_people_say(draw: st.DrawFn) -> Judgements:
    chosen, thumbed = [], []
    for number in range(draw(st.integers(0, 3))):
        state, prompt = draw(st.sampled_from(["live", "probe"])), draw(st.sampled_from(["", "q"]))
        place = Place(number + 1, number, 0, state, "id", prompt, "text", None)
        sides, thumbs = [], []
        for index in range(draw(st.integers(2, 14))):
            sides.append(Side(100 * number + index, index, draw(TEXTS), draw(REWARDS)))
            thumbs.append(draw(THUMBS))
        up, down = ([side for side, one in zip(sides, thumbs, strict=True) if one == what] for what in ("up", "down"))
        thumbed.append(ThumbedGroup(place, up, down))
        ends = st.lists(st.sampled_from(sides), min_size=2, max_size=2, unique=True)
        between = st.lists(ends, max_size=4, unique_by=lambda pair: frozenset(side.id for side in pair))
        chosen += [Pair(place, *pair, "choice") for pair in draw(between)]
    return Judgements(chosen, thumbed)


@settings(max_examples=150, deadline=None)
@given(whatever_people_say(), st.sampled_from(CONFIGS))
def test_what_is_counted_is_what_each_pair_comes_to(said: Judgements, config: dict[str, Any]) -> None:
    pairs = said.pairs()
    scored = [
        (pair, pair.better.reward, pair.worse.reward)
        for pair in pairs
        if pair.better.reward is not None and pair.worse.reward is not None
    ]
    against = [pair for pair, better, worse in scored if better < worse]
    found = agreement(said, config)
    assert found.pairs == len(pairs)
    for place, tally in by_group(said):
        own = [better > worse for pair, better, worse in scored if pair.group == place and better != worse]
        assert (tally.agreed, tally.disagreed) == (sum(own), len(own) - sum(own))
    assert {pair.group for pair in pairs} <= {place for place, _ in by_group(said)}
    assert found.trainable == len(list(lines(1, config, pairs)))
    assert found.agreed == sum(better > worse for _, better, worse in scored)
    assert found.disagreed == len(against)
    assert found.undecided == len(pairs) - found.agreed - found.disagreed
    shown = [(one.group_id, one.better_index, one.worse_index) for one in found.disagreements]
    assert shown == [(pair.group.id, pair.better.index, pair.worse.index) for pair in against[:SHOWN]]


def test_thousands_of_thumbs_of_one_group_build_no_pairs() -> None:
    place = Place(1, 0, 0, "live", "id", "q", "q", None)
    up, down = ([Side(2 * n + odd, 2 * n + odd, f"{n} {odd}", float(odd)) for n in range(20_000)] for odd in (1, 0))
    found = agreement(Judgements([], [ThumbedGroup(place, up, down)]), {})  # 400 million pairs
    assert (found.pairs, found.agreed, found.trainable) == (400_000_000, 400_000_000, 400_000_000)
