"""What the reward pays for, through a real backend: planted properties are found first, and nothing is found in noise."""

import random

import pytest
from acting import GRPO
from planted import Reward, odd, trained
from serving import Backend

from backend.contract.properties import PaidFor


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


def test_groups_without_a_difference_and_missing_rewards_say_nothing(shared_backend: Backend) -> None:
    run = trained(shared_backend, lambda text, place: None if place == 0 else 1.0)
    found = shared_backend.client.properties(run)
    assert (found.differing, found.unscored, found.properties) == (0, 64, [])


def test_a_run_without_groups_has_an_empty_answer(shared_backend: Backend) -> None:
    run = shared_backend.client.create_run(GRPO).id
    found = shared_backend.client.properties(run)
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
