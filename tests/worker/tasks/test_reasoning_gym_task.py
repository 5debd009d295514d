"""Reasoning Gym: the same items everywhere, scored by their own verifier, and what is said where there are none."""

import pytest

from backend.contract.reward import Correctness, Rewards
from backend.contract.task import ReasoningGym
from worker.rewards.scoring import RewardScorer, Sample
from worker.tasks.gym_generator import Refused, check, generate
from worker.tasks.items import Item, Items, TaskError
from worker.tasks.loading import load_items

# Whole pages, or processes that have to die: right, but too slow for `make check`.
pytestmark = pytest.mark.slow


def load(dataset: str, size: int = 40, **params: int) -> Items:
    return load_items(
        ReasoningGym.model_validate({"dataset": dataset, "size": size, "params": params}), fetch_upload=lambda _: b""
    )


@pytest.fixture(scope="module")
def knights() -> Items:
    """Its entries hold tuples and numpy's own strings, neither of which JSON knows."""
    return load("knights_knaves")


def test_a_quarter_as_many_are_held_out_and_none_is_trained_on(knights: Items) -> None:
    assert len(knights.held_out) == 10
    assert len(knights.train) <= 40
    assert {item.id for item in knights.train}.isdisjoint(item.id for item in knights.held_out)


def test_the_librarys_own_verifier_scores_in_the_reward_process(knights: Items) -> None:
    first, second = knights.train[:2]
    assert first.answer is not None
    rewards = Rewards(functions=[Correctness(name="right", extract="answer_tag", match="task")])
    with RewardScorer(rewards) as scorer:
        scores = scorer.score([[answered(first, first.answer), answered(first, "nobody")], [answered(second, "")]])
    assert scores.total[0] == 1.0
    assert (scores.total[1:] < 0.2).all()


def answered(item: Item, answer: str) -> Sample:
    return Sample(f"<answer>{answer}</answer>", 5, item)


@pytest.mark.thorough
def test_items_do_not_depend_on_how_the_interpreter_hashes_strings() -> None:
    first, again = (load("isomorphic_strings", 10) for _ in range(2))
    assert first == again


@pytest.mark.thorough
def test_an_unknown_name_is_answered_with_those_near_it() -> None:
    with pytest.raises(TaskError) as caught:
        load("leg_countin")
    assert caught.value.code == "task_unknown"
    assert caught.value.message.startswith("reasoning_gym has no data set leg_countin; near it: leg_counting")


def test_an_unknown_setting_is_answered_with_those_there_are_and_one_that_the_generator_refuses_says_so() -> None:
    with pytest.raises(Refused, match=r"leg_counting has no setting legs; it has .*max_animals") as caught:
        check("leg_counting", {"legs": 4})
    assert caught.value.code == "task_settings"
    with pytest.raises(Refused, match="has no setting seed"):
        check("leg_counting", {"seed": 4})
    with pytest.raises(Refused, match="leg_counting refuses its settings: "):
        generate("leg_counting", {"min_animals": 9, "max_animals": 3}, "1", 10)
