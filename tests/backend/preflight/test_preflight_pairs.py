"""What preflight says about runs on preference pairs."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from backend.contract.config import RUN_CONFIG
from backend.contract.preference import DpoConfig, RewardModelConfig
from backend.preflight.facts import Facts, Success
from backend.preflight.preflight import preflight

Config = RewardModelConfig | DpoConfig
READ: TypeAdapter[Config] = TypeAdapter(Config)
KINDS = pytest.mark.parametrize("kind", ["reward_model", "dpo"])
OWN = {"kind": "dataset", "source": "upload:1"}


def configured(kind: str, **changes: Any) -> Config:
    return READ.validate_python({"kind": kind, **changes})


@KINDS
def test_pairs_come_from_the_groups_that_are_not_dead(kind: str) -> None:
    config = configured(kind, pairs={"kind": "sampled", "prompts": 1000, "group_size": 2})
    answer = preflight(config, Facts(success=Success(0.5, "measured")))
    assert (answer.training_pairs, answer.trained_pairs) == (500, 1600)
    assert [one.group_size for one in answer.dead_groups] == [2, 4, 8, 16]
    assert answer.ok
    unknown = preflight(config, Facts())
    assert (unknown.training_pairs, unknown.success_rate, unknown.dead_groups) == (1000, None, [])


@KINDS
def test_own_pairs_are_as_many_as_the_data_has(kind: str) -> None:
    answer = preflight(configured(kind, pairs=OWN), Facts(training_items=90))
    assert (answer.training_pairs, answer.success_rate, answer.dead_groups) == (90, None, [])
    [warning] = [message for message in answer.messages if message.field == "budget.steps"]
    assert "each of about 90 pairs is seen about 18 times" in warning.text
    assert preflight(configured(kind, pairs=OWN), Facts()).training_pairs is None


def test_a_reward_model_needs_no_memory_for_logits_and_no_reference() -> None:
    def parts(kind: str, **changes: Any) -> dict[str, int]:
        memory = preflight(configured(kind, **changes), Facts()).memory
        assert memory is not None
        return memory.parts

    model, dpo = parts("reward_model"), parts("dpo")
    assert (model["logits"], model["reference"]) == (0, 0)
    assert dpo["logits"] > 0
    assert dpo["reference"] == dpo["weights"]
    assert parts("dpo", model={"lora": {}})["reference"] == 0


def test_completions_that_the_model_cannot_hold_nobody_to_train_and_no_checkpoints_are_said_of_pairs_too() -> None:
    pairs = {"kind": "sampled", "decoding": {"max_new_tokens": 600}}
    answer = preflight(configured("dpo", pairs=pairs, budget={"checkpoint_every": 0}), Facts())
    [error] = [message for message in answer.messages if message.level == "error"]
    assert (error.field, error.fix) == ("pairs.decoding.max_new_tokens", {"pairs.decoding.max_new_tokens": 256})
    assert not answer.ok
    assert any("no worker is connected" in message.text for message in answer.messages)
    assert any(message.field == "budget.checkpoint_every" for message in answer.messages)


def test_a_learned_reward_beside_a_z_score_is_told_what_it_does() -> None:
    learned = {"kind": "reward_model", "name": "judge", "source": "someone/scores"}
    config: dict[str, Any] = {"kind": "grpo", "rewards": {"functions": [learned]}}
    answer = preflight(RUN_CONFIG.validate_python(config), Facts())
    [hint] = [message for message in answer.messages if message.field == "algorithm.advantage"]
    assert "scores of the model judge are never quite equal" in hint.text
    mended = RUN_CONFIG.validate_python(config | {"algorithm": {"advantage": {"kind": "group_center"}}})
    assert not any(message.field == "algorithm.advantage" for message in preflight(mended, Facts()).messages)
