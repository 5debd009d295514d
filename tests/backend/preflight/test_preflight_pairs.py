"""What preflight says about runs on preference pairs."""

from typing import Any

import pytest
from pydantic import TypeAdapter

from backend.contract.config import RUN_CONFIG
from backend.contract.preference import DpoConfig, RewardModelConfig
from backend.contract.preflight import Preflight
from backend.preflight.facts import Facts, Success
from backend.preflight.preflight import parse, preflight

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
    model, dpo = (preflight(configured(kind), Facts()).memory for kind in ("reward_model", "dpo"))
    assert model is not None
    assert dpo is not None
    assert (model.parts["logits"], model.parts["reference"]) == (0, 0)
    assert dpo.parts["logits"] > 0
    assert dpo.parts["reference"] == dpo.parts["weights"]
    adapted = preflight(configured("dpo", model={"lora": {}}), Facts()).memory
    assert adapted is not None
    assert adapted.parts["reference"] == 0


def test_completions_that_the_model_cannot_hold_are_an_error_with_a_fix() -> None:
    answer = preflight(configured("dpo", pairs={"kind": "sampled", "decoding": {"max_new_tokens": 600}}), Facts())
    [error] = [message for message in answer.messages if message.level == "error"]
    assert (error.field, error.fix) == ("pairs.decoding.max_new_tokens", {"pairs.decoding.max_new_tokens": 256})
    assert not answer.ok


def test_nobody_to_train_and_no_checkpoints_are_said_for_every_kind() -> None:
    answer = preflight(configured("dpo", budget={"checkpoint_every": 0}), Facts())
    assert any("no worker is connected" in message.text for message in answer.messages)
    assert any(message.field == "budget.checkpoint_every" for message in answer.messages)


@pytest.mark.parametrize(
    ("config", "field", "words", "fix"),
    [
        (
            {"optimizer": {"warmup_steps": 200}, "budget": {"steps": 50}},
            "optimizer.warmup_steps",
            "warm-up of 200 steps is longer than the run of 50",
            {"optimizer.warmup_steps": 5},
        ),
        (
            {"optimizer": {"micro_batch_tokens": 90}},
            "optimizer.micro_batch_tokens",
            "a micro-batch of 90 tokens cannot hold both completions of a pair",
            {"optimizer.micro_batch_tokens": 384},
        ),
        (
            {"pairs": {"kind": "sampled", "task": {"kind": "single_prompt"}}},
            "pairs.task",
            "single_prompt has one prompt",
            {"budget.eval_every": 0},
        ),
        ({"pairs": OWN | {"held_out": 0}}, "pairs.held_out", "held_out is 0", {"pairs.held_out": 0.1}),
        (
            {"pairs": {"kind": "sampled", "task": {"kind": "dataset", "source": "upload:1", "held_out": 0}}},
            "pairs.task.held_out",
            "held_out is 0",
            {"pairs.task.held_out": 0.1},
        ),
        (
            {"pairs": {"kind": "sampled", "task": {"kind": "dataset", "source": "upload:1", "answer_column": None}}},
            "pairs.task.answer_column",
            "has no answer_column",
            None,
        ),
        ({"pairs": {"kind": "sampled", "group_size": 1}}, "pairs.group_size", "at least 2", {"pairs.group_size": 2}),
    ],
)
def test_what_does_not_go_together_stands_at_its_field_with_a_fix(
    config: dict[str, Any], field: str, words: str, fix: dict[str, Any] | None
) -> None:
    answer = parse({"kind": "reward_model"} | config)
    assert isinstance(answer, Preflight)
    [message] = answer.messages
    assert (message.level, message.field, message.fix) == ("error", field, fix)
    assert words in message.text


def test_a_learned_reward_beside_a_z_score_is_told_what_it_does() -> None:
    learned = {"kind": "reward_model", "name": "judge", "source": "someone/scores"}
    config: dict[str, Any] = {"kind": "grpo", "rewards": {"functions": [learned]}}
    answer = preflight(RUN_CONFIG.validate_python(config), Facts())
    [hint] = [message for message in answer.messages if message.field == "algorithm.advantage"]
    assert "scores of the model judge are never quite equal" in hint.text
    mended = RUN_CONFIG.validate_python(config | {"algorithm": {"advantage": {"kind": "group_center"}}})
    assert not any(message.field == "algorithm.advantage" for message in preflight(mended, Facts()).messages)
