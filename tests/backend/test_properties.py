"""What the reward pays for, through a real backend: planted properties are found first, and nothing is found in noise."""

import random
import sys
from math import comb, sqrt

import pytest
from acting import GRPO
from planted import Reward, odd, trained
from serving import Backend

from backend.contract.properties import PaidFor
from backend.properties.hints import FELL, JUDGED


def names(found: PaidFor) -> list[list[str]]:
    """The clear ones, each with those that cannot be separated from it."""
    return [[one.title, *one.same] for one in found.properties if one.clear]


@pytest.mark.parametrize(
    ("pays", "title"),
    [
        (lambda text, _: float(len(text)), "the number of characters"),
        (lambda text, _: float("expert" in text), "the phrase “as an expert”"),
        (lambda text, _: float(sum(map(str.isdigit, text))), "the number of digits"),
        (lambda text, _: float("<answer>" in text), "the tag <answer>"),
    ],
)
def test_what_is_paid_for_comes_first(shared_backend: Backend, pays: Reward, title: str) -> None:
    found = shared_backend.client.properties(trained(shared_backend, pays))
    first = found.properties[0]
    assert title in [first.title, *first.same]
    assert first.clear
    assert first.correlation > 0.9
    assert first.low is not None
    assert first.high is not None
    assert 0 < first.low <= first.effect <= first.high
    assert [point.from_step for point in first.trend] == [2 * part for part in range(8)]
    assert first.examples[0].more.value > first.examples[0].less.value
    assert first.examples[0].more.reward > first.examples[0].less.reward


def test_rewards_by_chance_pay_for_nothing(shared_backend: Backend) -> None:
    draw = random.Random(7)
    run = trained(shared_backend, lambda _text, _place: draw.choice([0.0, 1.0]))
    found = shared_backend.client.properties(run)
    assert found.looked_at > 20
    assert names(found) == []


def test_a_component_and_a_window_are_looked_at_by_themselves(shared_backend: Backend) -> None:
    run = trained(shared_backend, lambda text, _: float("expert" in text))
    found = shared_backend.client.properties(run, reward="truth", from_step=4, to_step=11)
    assert (found.reward, found.rewards) == ("truth", ["judge", "truth"])
    assert (found.from_step, found.to_step, found.groups, found.all_groups) == (4, 11, 32, 32)
    assert "as an expert" not in str(names(found))
    assert shared_backend.client.properties(run, reward="no such").properties == []


def test_groups_without_a_difference_missing_rewards_and_no_groups_say_nothing(shared_backend: Backend) -> None:
    run = trained(shared_backend, lambda text, place: None if place == 0 else 1.0)
    found = shared_backend.client.properties(run)
    assert (found.differing, found.unscored, found.properties) == (0, 64, [])
    found = shared_backend.client.properties(shared_backend.client.create_run(GRPO).id)
    assert (found.groups, found.from_step, found.properties, found.phrases) == (0, None, [], [])


def spread(step: int) -> float:
    """From none of the completions to nearly all of them, in 24 steps."""
    return max(0.0, (step - 4) / 20)


def expert(text: str, _place: int) -> float:
    return float("expert" in text)


@pytest.mark.parametrize(("truth", "level"), [(odd, "warning"), (lambda *_: 0.0, "note"), (expert, None)])
def test_a_phrase_that_takes_over_is_a_hint_unless_what_is_right_goes_with_it(
    shared_backend: Backend, truth: Reward, level: str | None
) -> None:
    run = trained(shared_backend, expert, steps=24, truth=truth, expert=spread)
    found = shared_backend.client.properties(run)
    [line] = [one for one in found.phrases if one.phrase == "as an expert"]
    assert line.first < 0.05
    assert line.rewarded == 1.0
    assert 0 < line.low < line.last - line.first < line.high
    assert [(one.code, one.level) for one in found.hints] == ([] if level is None else [("phrase_takes_over", level)])


def test_a_phrase_that_was_there_from_the_start_is_not_a_hint(shared_backend: Backend) -> None:
    found = shared_backend.client.properties(trained(shared_backend, expert, steps=24))
    assert found.properties[0].clear
    assert found.hints == []


def more_often(step: int) -> float:
    """In 24 steps, a share that rises in the middle, and never so low or high that most groups would have all or none."""
    return 0.3 if step < 12 else 0.7


def judge(backend: Backend, run: int, *, late: float, most: int = 100) -> None:
    """One choice in each group whose rewards differ: as the reward says in the first 12 steps, after them in this share of groups.

    `most` bounds how many groups of the later steps are judged.
    """
    seen = 0
    for head in backend.client.groups(run, limit=200).items:
        if head.state != "live" or (head.step >= 12 and seen == most):
            continue
        agrees = head.step < 12 or int((seen + 1) * late) > int(seen * late)
        seen += head.step >= 12
        members = sorted(backend.client.group(head.id).completions, key=lambda one: one.reward or 0.0, reverse=agrees)
        backend.client.people.choose(head.id, better=members[0].id, worse=members[-1].id)


@pytest.mark.parametrize(("late", "level"), [(0.0, "warning"), (0.7, "note"), (0.9, None)])
def test_people_who_agree_less_while_the_reward_rises_are_a_hint(
    shared_backend: Backend, late: float, level: str | None
) -> None:
    run = trained(shared_backend, expert, steps=24, truth=expert, expert=more_often)
    judge(shared_backend, run, late=late)
    hints = shared_backend.client.properties(run).hints
    assert [(one.code, one.level) for one in hints] == ([] if level is None else [("agreement_falls", level)])
    for one in hints:
        assert one.numbers["before"] == 1.0
        assert one.numbers["now"] == pytest.approx(late, abs=0.03)
        assert one.numbers["reward_before"] < one.numbers["reward_now"]
        assert one.evidence is not None
        assert (one.evidence.from_step, one.evidence.to_step) == (0, 23)
    assert shared_backend.client.properties(run, reward="judge").hints == []  # people are asked about the total
    assert shared_backend.client.properties(run, from_step=12).hints == []  # all as before the fall, or as after it


@pytest.mark.thorough
def test_people_who_agree_less_are_no_hint_while_the_reward_falls_or_few_are_judged(shared_backend: Backend) -> None:
    falling = trained(shared_backend, expert, steps=24, truth=expert, expert=lambda step: more_often(23 - step))
    judge(shared_backend, falling, late=0.0)
    rising = trained(shared_backend, expert, steps=24, truth=expert, expert=more_often)
    judge(shared_backend, rising, late=0.0, most=JUDGED - 1)
    assert [shared_backend.client.properties(run).hints for run in (falling, rising)] == [[], []]


@pytest.mark.parametrize("groups", [(JUDGED, JUDGED), (JUDGED, 40), (40, JUDGED), (60, 60)])
def test_an_agreement_that_stays_as_it_is_seldom_seems_to_fall(groups: tuple[int, int]) -> None:
    first, last = groups

    def drawn(of: int, agreeing: int, share: float) -> float:
        return comb(of, agreeing) * share**agreeing * (1 - share) ** (of - agreeing)

    def seems_to_fall(share: float) -> float:
        chance = 0.0
        for a in range(first + 1):
            for b in range(last + 1):
                whole = (a + b) / (first + last)
                error = sqrt(whole * (1 - whole) * (1 / first + 1 / last))
                if a / first > b / last and a / first - b / last >= FELL * error:
                    chance += drawn(first, a, share) * drawn(last, b, share)
        return chance

    assert max(seems_to_fall(percent / 100) for percent in range(50, 100, 5)) < 0.005


def says_again(text: str, _place: int) -> float:
    return float("look look" in text)


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_in_a_window_of_few_steps_repetition_that_does_not_grow_is_no_hint(shared_backend: Backend, steps: int) -> None:
    run = trained(shared_backend, says_again, steps=steps, groups=16, phrase="look look look look look look")
    found = shared_backend.client.properties(run)
    assert "the share of words that repeat earlier ones" in str(names(found))
    assert (found.groups, found.hints) == (16 * steps, [])


def test_a_phrase_that_comes_within_four_steps_is_seen(shared_backend: Backend) -> None:
    run = trained(shared_backend, says_again, steps=4, groups=16, expert=lambda step: 0.9 if step > 1 else 0.0)
    line = shared_backend.client.properties(run).phrases[0]
    assert line.phrase == "as an expert"
    assert line.first == 0.0
    assert line.last > 0.7


def test_rewards_as_large_as_floats_can_be_have_an_answer(shared_backend: Backend) -> None:
    run = trained(shared_backend, lambda text, _: 1.7e308 * (1 if "expert" in text else -1))
    first = shared_backend.client.properties(run).properties[0]
    assert (first.of, first.effect) == ("as an expert", sys.float_info.max)
