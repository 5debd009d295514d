"""The total: a weighted sum, gates, and what is only measured."""

import pytest

from backend.contract.reward import Gate, Length, Pattern, Rewards
from worker.algorithms.total_reward import total_reward


def rewards(*gates: Gate) -> Rewards:
    functions = [
        Length(name="a", weight=1.0),
        Length(name="b", weight=0.5),
        Pattern(name="c", weight=-2.0, patterns=["x"]),
    ]
    return Rewards(functions=functions, gates=list(gates))


def test_a_total_is_the_weighted_sum_of_what_every_gate_lets_count() -> None:
    assert total_reward({"a": 1.0, "b": 0.5, "c": 0.25}, rewards()) == 0.75
    gated = rewards(Gate(reward="a", requires="b", at_least=0.5))
    assert total_reward({"a": 1.0, "b": 0.5, "c": 0.0}, gated) == 1.25
    assert total_reward({"a": 1.0, "b": 0.4, "c": 0.0}, gated) == 0.2
    twice = rewards(Gate(reward="a", requires="b"), Gate(reward="a", requires="c"))
    assert total_reward({"a": 1.0, "b": 1.0, "c": 0.0}, twice) == 0.5


@pytest.mark.parametrize("missing", ["a", "b", "c"])
def test_a_total_without_one_of_its_scores_is_missing_and_never_zero(missing: str) -> None:
    scores: dict[str, float | None] = {"a": 1.0, "b": 0.0, "c": 1.0}
    total = total_reward(scores | {missing: None}, rewards(Gate(reward="a", requires="b")))
    assert total != total


def test_what_is_only_measured_moves_nothing_even_where_it_fails_unless_a_gate_asks_it() -> None:
    measured = Rewards(functions=[Length(name="a"), Length(name="b", weight=0.0)])
    assert total_reward({"a": 0.5, "b": 1.0}, measured) == 0.5
    assert total_reward({"a": 0.5, "b": None}, measured) == 0.5
    gated = measured.model_copy(update={"gates": [Gate(reward="a", requires="b")]})
    assert total_reward({"a": 0.5, "b": 0.0}, gated) == 0.0
    total = total_reward({"a": 0.5, "b": None}, gated)
    assert total != total
