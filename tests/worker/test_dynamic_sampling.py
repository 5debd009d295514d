"""Dead groups are sampled again until the batch is full of live ones."""

from dataclasses import replace

import pytest
from test_learner_axes import scores_of

from backend.contract.advantage import GroupZscore, NormalizeThenSum
from backend.contract.groups import RewardScore
from worker.groups import Scored, fill_with_live
from worker.rewards.scoring import Scores
from worker.rollout.engine import Completion, Rollout
from worker.tasks.items import Item

Group = tuple[str, list[float]]


def scored(*groups: Group) -> Scored:
    """Groups of two, each with the name of its prompt and its rewards."""
    items = [Item(name, name, None, None, {}) for name, _ in groups]
    rewards = [reward for _, pair in groups for reward in pair]
    completions = [Completion([1, 2], [-1.0, -1.0], "stop", f"{name}{g}") for name, _ in groups for g in range(2)]
    rollout = Rollout(items, [item.id for item in items], [[7]] * len(items), 2, completions)
    return Scored(rollout, scores_of(rewards))


def names(of: Scored | None) -> list[str]:
    return [] if of is None else [item.id for item in of.rollout.items_P]


class Prompts:
    """Gives what it was made of, group by group, and keeps what it was asked for."""

    def __init__(self, *groups: Group) -> None:
        self.left, self.asked = list(groups), list[tuple[int, int]]()

    def more(self, count: int, first_group: int) -> Scored:
        self.asked.append((count, first_group))
        given, self.left = self.left[:count], self.left[count:]
        return scored(*given)


def test_dead_groups_are_replaced_in_their_places_until_none_is_left() -> None:
    first = scored(("a", [1, 1]), ("b", [0, 1]), ("c", [0, 0]))
    prompts = Prompts(("d", [1, 1]), ("e", [1, 0]), ("f", [0, 1]))
    batch, filtered = fill_with_live(first, prompts.more, GroupZscore(), rounds=5)
    assert prompts.asked == [(2, 3), (1, 5)]  # group numbers go on, so that every group draws its own random numbers
    assert sorted(names(batch)) == ["b", "e", "f"]
    assert names(batch)[1] == "b"
    assert sorted(names(filtered)) == ["a", "c", "d"]
    assert batch.rewards_P_G.tolist() == [[1, 0], [0, 1], [0, 1]]
    assert [completion.text for completion in batch.rollout.completions_R] == ["e0", "e1", "b0", "b1", "f0", "f1"]


@pytest.mark.parametrize(
    ("first", "left", "rounds", "batch", "filtered"),
    [
        ([("a", [1, 0]), ("b", [0, 1])], [], 3, ["a", "b"], []),
        ([("a", [1, 1]), ("b", [0, 1])], [("c", [1, 1]), ("d", [0, 0])], 2, ["a", "b"], ["c", "d"]),
        ([("a", [float("nan"), 1.0])], [("b", [0, 1])], 1, ["b"], ["a"]),
    ],
    ids=["live groups are left", "the batch keeps its size after the last round", "what cannot be judged is replaced"],
)
def test_only_dead_groups_are_replaced_and_no_more_often_than_is_said(
    first: list[Group], left: list[Group], rounds: int, batch: list[str], filtered: list[str]
) -> None:
    prompts = Prompts(*left)
    filled, taken_out = fill_with_live(scored(*first), prompts.more, GroupZscore(), rounds=rounds)
    assert (names(filled), names(taken_out)) == (batch, filtered)
    assert len(prompts.asked) == len(left)


def test_equal_totals_of_different_rewards_are_no_dead_group_where_each_is_normalised_by_itself() -> None:
    prompts = Prompts(("b", [0, 1]))
    totals = scored(("a", [1, 1]))
    parts = [[RewardScore(name=name, raw=raw, weight=1.0) for name, raw in (("x", x), ("y", 1 - x))] for x in (0, 1)]
    traded = replace(totals, scores=Scores(parts, totals.scores.total))
    assert fill_with_live(traded, prompts.more, NormalizeThenSum(), rounds=1) == (traded, None)
    assert names(fill_with_live(traded, prompts.more, GroupZscore(), rounds=1)[0]) == ["b"]
