"""Which prompts a step asks: in rounds as ever, by the shares of sources, or by learnability, and always the same for the same history."""

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from backend.contract.training import Curriculum
from worker.tasks.items import Item, Items, draw
from worker.tasks.prompt_sampler import Learnability, PromptSampler

ON = Curriculum(half_life=50, uniform=0.1)


def numbered(count: int, source: str = "") -> list[Item]:
    return [Item(f"{source}:{n}", "q", None, None, {"kind": "exact"}, source=source or "all") for n in range(count)]


def sampler(count: int, curriculum: Curriculum | None = ON, seed: int = 0) -> PromptSampler:
    return PromptSampler(Items(numbered(count), []), seed, curriculum)


def succeed(items: list[Item], *rates: float, group_size: int = 8) -> NDArray[np.float64]:
    """(P, G): of each item's group, this share of ones."""
    right = [[1.0] * round(rate * group_size) for rate in rates[: len(items)]]
    return np.array([[*ones, *[0.0] * (group_size - len(ones))] for ones in right])


def by_number(item: Item) -> float:
    """Never, half of the time and always right, in turn."""
    return (int(item.id.partition(":")[2]) % 3) / 2


def played(one: PromptSampler, steps: range, count: int = 8) -> list[list[str]]:
    """The ids of each step, whose successes depend on the item alone."""
    drawn = []
    for step in steps:
        items = one.draw(step, cursor=count * step, count=count)
        one.see(step, items, succeed(items, *map(by_number, items)))
        drawn.append([item.id for item in items])
    return drawn


def shares(ids: list[list[str]]) -> Counter[float]:
    return Counter((int(one.partition(":")[2]) % 3) / 2 for step in ids for one in step)


# ---- off


@pytest.mark.parametrize("count", [5, 16, 40])
def test_without_a_curriculum_prompts_are_drawn_as_they_always_were(count: int) -> None:
    items = numbered(17)
    one = PromptSampler(Items(items, []), 3)
    for step in range(6):
        drawn = one.draw(step, cursor=step * count, count=count)
        assert drawn == draw(items, cursor=step * count, count=count, seed=3)
        one.see(step, drawn, succeed(drawn, *map(by_number, drawn)))
    assert one.metrics() == {}
    assert one.state() is None


# ---- keyed


def test_another_seed_or_history_draws_other_prompts() -> None:
    assert played(sampler(60), range(20)) != played(sampler(60, seed=1), range(20))
    samplers = [sampler(60), sampler(60)]
    for step in range(10):
        for turn, each in enumerate(samplers):
            items = each.draw(step, cursor=8 * step, count=8)
            each.see(step, items, succeed(items, *[turn * 0.5] * 8))
    one, other = (each.draw(10, cursor=80, count=8) for each in samplers)
    assert [item.id for item in one] != [item.id for item in other]


def mixed(curriculum: Curriculum | None) -> PromptSampler:
    parts = [(numbered(30, "a"), 3.0), (numbered(300, "b"), 1.0)]
    return PromptSampler(Items([item for items, _ in parts for item in items], [], parts), 0, curriculum)


@pytest.mark.parametrize(
    "make",
    [lambda: sampler(60), lambda: mixed(ON), lambda: mixed(None)],
    ids=["one source", "two sources", "two sources in rounds"],
)
def test_a_restored_sampler_draws_as_the_one_that_was_saved(make: Callable[[], PromptSampler]) -> None:
    straight, killed, resumed = make(), make(), make()
    expected = played(straight, range(20))
    played(killed, range(12))
    saved = killed.state()
    assert (saved is None) == (straight.metrics() == {}), "without a curriculum all follows from the cursor"
    resumed.restore(saved or {})
    assert played(resumed, range(12, 20)) == expected[12:]
    assert resumed.metrics() == straight.metrics()


# ---- by learnability


def test_what_is_sometimes_right_is_drawn_most() -> None:
    one = sampler(90, Curriculum(half_life=1000, uniform=0.05))
    played(one, range(30))
    later = shares(played(one, range(30, 60)))
    assert later[0.5] > 2 * (later[0.0] + later[1.0])


def test_an_item_is_drawn_by_the_posterior_mean_of_p_times_one_minus_p() -> None:
    one = Learnability(numbered(3), 0, Curriculum(half_life=1_000_000, uniform=1e-9))
    items = one.draw(0, 0, 3)
    order = [int(item.id[1:]) for item in items]
    one.see(0, items, succeed(items, *([0.0, 0.25, 1.0][number] for number in order)))
    # Beta(0.03 + right, 0.03 + wrong): its mean of p (1 - p) is ab / ((a + b)(a + b + 1)).
    expected = np.array([0.03 * 8.03, 2.03 * 6.03, 8.03 * 0.03]) / (8.06 * 9.06)
    assert one.weights(0) == pytest.approx(expected / expected.sum())
    assert one.rates == pytest.approx(np.array([0.03, 2.03, 8.03]) / 8.06)


def test_a_prompt_that_always_gets_the_same_part_of_the_reward_teaches_little() -> None:
    one = Learnability(numbered(2), 0, Curriculum(half_life=1_000_000, uniform=1e-9))
    items = sorted(one.draw(0, 0, 2), key=lambda item: item.id)
    one.see(0, items, np.array([[0.5] * 8, [0.0, 1.0] * 4]))
    constant, spread = one.weights(0)
    assert constant < 0.15 * spread


def test_unseen_prompts_are_drawn_before_those_that_are_known_to_be_dead() -> None:
    one = sampler(40, Curriculum(half_life=1000, uniform=0.05))
    first = one.draw(0, cursor=0, count=20)
    one.see(0, first, succeed(first, *[1.0] * 20))
    seen = {item.id for item in first}
    drawn = [item.id for step in range(1, 21) for item in one.draw(step, cursor=20 * step, count=4)]
    assert sum(one not in seen for one in drawn) > 0.6 * len(drawn)


def test_no_prompt_is_drawn_twice_in_a_step_while_there_are_others() -> None:
    one = sampler(10)
    items = one.draw(0, cursor=0, count=4) + one.draw(0, cursor=4, count=6)  # resampled within the step
    assert len({item.id for item in items}) == 10
    again = one.draw(0, cursor=10, count=25)
    assert set(Counter(item.id for item in again).values()) == {2, 3}


def test_what_was_seen_long_ago_counts_less() -> None:
    one = Learnability(numbered(2), 0, Curriculum(half_life=10, uniform=1e-9))
    items = sorted(one.draw(0, 0, 2), key=lambda item: item.id)
    one.see(0, items, succeed(items, 1.0, 0.5))
    dead, live = one.weights(0)
    later_dead, _ = one.weights(10_000)
    assert dead < 0.25 * live
    assert later_dead == pytest.approx(0.5)


def test_unscored_completions_say_nothing() -> None:
    one = sampler(2)
    items = one.draw(0, cursor=0, count=2)
    one.see(0, items, np.full((2, 4), math.nan))
    assert one.metrics()["curriculum/seen"] == 0
    assert math.isnan(one.metrics()["curriculum/success"])
    one.see(0, items[:1], np.array([[1.0, math.nan, math.nan, 0.0]]))
    assert one.metrics() == {"curriculum/seen": 0.5, "curriculum/success": 0.5}


# ---- sources


@pytest.mark.parametrize("curriculum", [None, ON], ids=["in rounds", "curriculum"])
def test_each_step_has_the_shares_of_its_sources(curriculum: Curriculum | None) -> None:
    one = mixed(curriculum)
    for step in range(20):
        items = one.draw(step, cursor=16 * step, count=16)
        assert Counter(item.source for item in items)["a"] in (11, 12, 13)
        one.see(step, items, succeed(items, *[0.0 if item.source == "a" else 0.5 for item in items]))
