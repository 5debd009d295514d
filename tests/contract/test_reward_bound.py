"""How much reward there is to get, as far as a stored configuration says so."""

from typing import get_args

import pytest

from backend.contract.base import Json
from backend.contract.reward import BOUNDED, RewardFunction, reward_bound


def functions(*of: Json) -> dict[str, Json]:
    return {"rewards": {"functions": list(of)}}


def test_every_kind_of_reward_is_known_to_have_a_bound_or_none() -> None:
    kinds = {get_args(one.model_fields["kind"].annotation)[0] for one in get_args(get_args(RewardFunction)[0])}
    assert kinds - BOUNDED == {"python", "reward_model"}
    assert kinds >= BOUNDED


@pytest.mark.parametrize(
    ("config", "highest"),
    [
        (functions({"kind": "correctness", "weight": 0.9}, {"kind": "length", "weight": -0.5}), 0.9),
        (functions({"kind": "correctness"}), 1.0),
        (functions({"kind": "correctness", "weight": 0.9}, {"kind": "python", "weight": 0.1}), None),
        (functions({"kind": "correctness", "weight": 0.9}, {"kind": "python", "weight": 0.0}), 0.9),
        (functions({"kind": "length", "weight": -0.5}), None),
        (functions({"weight": 1.0}), None),
        (functions("odd"), None),
        ({"rewards": None}, None),
        ({}, None),
    ],
)
def test_the_highest_reward_is_known_where_every_weighing_function_has_a_bound(
    config: dict[str, Json], highest: float | None
) -> None:
    assert reward_bound(config) == highest
