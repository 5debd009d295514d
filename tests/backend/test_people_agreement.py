"""The agreement of people with the reward is counted, and comes to what going through each pair would."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.people.agreement import SHOWN, agreement, by_group
from backend.people.pairs import Judgements, Pair, Place, Side, ThumbedGroup, lines

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
