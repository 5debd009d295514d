"""Which two completions of a group to ask about next, and in which group."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from random import Random

from backend.contract.groups import CompletionRecord, Group
from backend.contract.people import Choice
from backend.contract.records import Run
from dashboard.components.known_steps import known_steps
from dashboard.session import client, guard

ASKED_OF = 64  # completions of a group at most, for the pairs are many more

Pair = tuple[CompletionRecord, CompletionRecord]
Places = frozenset[int]
"""The indices of two completions."""


def propose(group: Group, choices: Sequence[Choice], skipped: Collection[Places] = ()) -> Pair | None:
    """The next two, left and right; None once every two texts are settled or skipped.

    Completions of one text are one here. A pair is settled where it was chosen from, or where choices between others imply
    it. Of the rest, one that the reward decides comes first, since only such a pair can agree with it; then the pair whose
    completions were compared least. Which comes first of equals, and which stands on the left, is drawn by the group's
    number: neither the order of sampling nor the size of the difference in reward decides what is asked, so that the share
    of agreement is one over any such pairs.
    """
    by_text: dict[str, CompletionRecord] = {}
    for completion in group.completions:
        by_text.setdefault(completion.text, completion)
    first = {one.index: by_text[one.text].index for one in group.completions}
    chosen = [(first[choice.better_index], first[choice.worse_index]) for choice in choices]
    settled = {frozenset(pair) for pair in implied(chosen)}
    compared = Counter(index for pair in chosen for index in pair)
    dice = Random(group.id)  # an order, no secret
    pairs = list(combinations(dice.sample(list(by_text.values()), min(ASKED_OF, len(by_text))), 2))
    dice.shuffle(pairs)
    return min(
        (pair for pair in pairs if places(pair) not in settled and places(pair) not in skipped),
        key=lambda pair: (not _decided(pair), sum(compared[one.index] for one in pair)),
        default=None,
    )


def places(pair: Pair) -> Places:
    """Which two, whatever their sides."""
    return frozenset(one.index for one in pair)


def implied(choices: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Every (better, worse) that follows: what is better than the better of two is better than the worse."""
    known: set[tuple[int, int]] = set()
    for better, worse in choices:
        above = {better} | {high for high, low in known if low == better}
        below = {worse} | {low for high, low in known if high == worse}
        known |= {(high, low) for high in above for low in below if high != low}
    return known


def _decided(pair: Pair) -> bool:
    one, other = pair
    return one.reward is not None and other.reward is not None and one.reward != other.reward


def next_to_judge(run: Run, after: Group | None = None) -> int | None:
    """The id of a live group that is not settled: the newest step's first, or the first behind `after` in that order.

    None if every group is settled. Asks for one group after another until it has found one: as many as a person has judged.
    """
    steps = [one.step for one in reversed(known_steps(run)) if one.states.get("live")]
    with guard():
        for step in steps:
            if after is not None and step > after.step:
                continue
            for group in client().groups(run.id, step=step, state="live", sort="index", limit=200).items:
                passed = after is not None and step == after.step and group.index <= after.index
                if not passed and propose(client().group(group.id), client().people.choices(group.id)) is not None:
                    return group.id
    return None
