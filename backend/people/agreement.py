"""People against the reward. Pairs of thumbs are counted and not built: a thousand up and a thousand down are a million pairs."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from backend.contract.base import Json
from backend.contract.people import Agreement, Disagreement
from backend.people.pairs import Judgements, Pair, Place, Side, ThumbedGroup, chat_of

SHOWN = 50


@dataclass(frozen=True)
class Tally:
    """How many pairs there are, and in how many of them the reward says what people say, or the opposite."""

    pairs: int = 0
    agreed: int = 0
    disagreed: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.pairs + other.pairs, self.agreed + other.agreed, self.disagreed + other.disagreed)

    def __sub__(self, other: "Tally") -> "Tally":
        return Tally(self.pairs - other.pairs, self.agreed - other.agreed, self.disagreed - other.disagreed)


def agreement(said: Judgements, config: Mapping[str, Json]) -> Agreement:
    """How often the reward is higher for what people find better; `config` is the run's stored one."""
    chosen, chosen_between, tallies = _told_apart(said), said.chosen_between(), _by_thumbs(said)
    whole = sum((tally for _, tally in by_group(said)), Tally())
    trained = [pair for pair in chosen if pair.group.state != "probe"]
    groups = [of for of in said.thumbed if of.group.state != "probe" and tallies[of.group.id].pairs]
    chat = chat_of(config, [*(pair.group for pair in trained), *(of.group for of in groups)])
    if chat:
        trainable = len(trained) + sum(tallies[of.group.id].pairs for of in groups)
    else:
        trainable = sum(bool(pair.better.text and pair.worse.text) for pair in trained)
        trainable += sum(
            _between(_written(of.up), _written(of.down), chosen_between[of.group.id]).pairs for of in groups
        )
    return Agreement(
        thumbs_up=sum(len(of.up) for of in said.thumbed),
        thumbs_down=sum(len(of.down) for of in said.thumbed),
        choices=len(said.chosen),
        pairs=whole.pairs,
        trainable=trainable,
        agreed=whole.agreed,
        disagreed=whole.disagreed,
        undecided=whole.pairs - whole.agreed - whole.disagreed,
        disagreements=list(islice(_disagreements(chosen, said), SHOWN)),
    )


def by_group(said: Judgements) -> list[tuple[Place, Tally]]:
    """Each judged group, and what its choices and thumbs come to together."""
    places = {of.group.id: of.group for of in said.thumbed} | {pair.group.id: pair.group for pair in said.chosen}
    tallies = defaultdict(Tally, _by_thumbs(said))
    for pair in _told_apart(said):
        tallies[pair.group.id] += _tally([pair.better], [pair.worse])
    return [(places[group], tally) for group, tally in tallies.items()]


def _told_apart(said: Judgements) -> list[Pair]:
    return [pair for pair in said.chosen if pair.better.text != pair.worse.text]


def _by_thumbs(said: Judgements) -> dict[int, Tally]:
    """By group, what its thumbs come to."""
    chosen_between = said.chosen_between()
    return {of.group.id: _between(of.up, of.down, chosen_between[of.group.id]) for of in said.thumbed}


def _between(up: Sequence[Side], down: Sequence[Side], chosen_between: set[frozenset[int]]) -> Tally:
    """Every thumb up with every thumb down, less those of equal texts and those of which a choice speaks."""
    tally, ups, downs = _tally(up, down), _by_text(up), _by_text(down)
    for text in ups.keys() & downs.keys():
        tally -= _tally(ups[text], downs[text])
    lower = {one.id: one for one in down}
    higher = {one.id: one for one in up}
    for pair in chosen_between:
        for better in pair & higher.keys():
            for worse in pair & lower.keys():
                if higher[better].text != lower[worse].text:
                    tally -= _tally([higher[better]], [lower[worse]])
    return tally


def _tally(up: Sequence[Side], down: Sequence[Side]) -> Tally:
    rewards = sorted(one.reward for one in down if one.reward is not None)
    scored = [one.reward for one in up if one.reward is not None]
    agreed = sum(bisect_left(rewards, reward) for reward in scored)
    disagreed = sum(len(rewards) - bisect_right(rewards, reward) for reward in scored)
    return Tally(len(up) * len(down), agreed, disagreed)


def _by_text(sides: Sequence[Side]) -> dict[str, list[Side]]:
    found: dict[str, list[Side]] = defaultdict(list)
    for side in sides:
        found[side.text].append(side)
    return found


def _written(sides: Sequence[Side]) -> list[Side]:
    return [side for side in sides if side.text]


def _disagreements(chosen: Sequence[Pair], said: Judgements) -> Iterator[Disagreement]:
    """In order: the newest group first, then by the indices of the better and the worse one."""
    by_group: dict[int, list[Pair]] = defaultdict(list)
    for pair in chosen:
        by_group[pair.group.id].append(pair)
    thumbed, chosen_between = {of.group.id: of for of in said.thumbed}, said.chosen_between()
    for group_id in sorted(by_group.keys() | thumbed.keys(), reverse=True):
        own = [found for pair in by_group[group_id] if (found := _disagreement(pair)) is not None]
        of = thumbed.get(group_id)
        if of is not None:
            own += islice(_against(of, chosen_between[group_id]), SHOWN)
        yield from sorted(own, key=lambda one: (one.better_index, one.worse_index))


def _against(of: ThumbedGroup, chosen_between: set[frozenset[int]]) -> Iterator[Disagreement]:
    """Those of one group's thumbs, in order; what has a higher reward than every thumb down is passed over at once."""
    highest = max((one.reward for one in of.down if one.reward is not None), default=None)
    down = sorted(of.down, key=lambda one: one.index)
    for better in sorted(of.up, key=lambda one: one.index):
        if better.reward is None or highest is None or better.reward >= highest:
            continue
        for worse in down:
            if worse.reward is None or worse.reward <= better.reward or worse.text == better.text:
                continue
            if frozenset((better.id, worse.id)) not in chosen_between:
                found = _disagreement(Pair(of.group, better, worse, "thumbs"))
                if found is not None:
                    yield found


def _disagreement(pair: Pair) -> Disagreement | None:
    better, worse = pair.better.reward, pair.worse.reward
    if better is None or worse is None or better >= worse:
        return None
    return Disagreement(
        group_id=pair.group.id,
        step=pair.group.step,
        group_index=pair.group.index,
        prompt=pair.group.prompt or pair.group.prompt_text,
        better_index=pair.better.index,
        worse_index=pair.worse.index,
        better_reward=better,
        worse_reward=worse,
    )
