"""A wrong configuration is told field by field, in words, with a fix where one is obvious."""

from typing import Any

import pytest

from backend.contract.grpo import GrpoConfig
from backend.contract.preflight import Message, Preflight
from backend.preflight.preflight import parse


def refused(**config: Any) -> dict[str | None, Message]:
    answer = parse({"kind": "grpo"} | config)
    assert isinstance(answer, Preflight)
    assert not answer.ok
    assert all(message.level == "error" for message in answer.messages)
    return {message.field: message for message in answer.messages}


@pytest.mark.parametrize(
    ("config", "field", "words", "fix"),
    [
        ({"sampling": {"group_size": 0}}, "sampling.group_size", "at least 1 (got 0)", {"sampling.group_size": 1}),
        ({"sampling": {"top_p": 1.5}}, "sampling.top_p", "at most 1", {"sampling.top_p": 1}),
        ({"sampling": {"groupsize": 8}}, "sampling.groupsize", "not a known field", None),
        ({"budget": {"steps": "many"}}, "budget.steps", "whole number", None),
        (
            {"optimizer": {"learning_rate": "abc"}},
            "optimizer.learning_rate",
            "type a number, such as 5e-5 (got 'abc')",
            None,
        ),
        ({"optimizer": {"learning_rate": float("nan")}}, "optimizer.learning_rate", "finite", None),
        ({"task": {"kind": "poems"}}, "task", "'arithmetic'", None),
        ({"task": {"kind": "dataset"}}, "task.source", "is required", None),
        (
            {"task": {"kind": "arithmetic", "low": 9, "high": 1}},
            "task.low",
            "low (9) is above high (1)",
            {"task.low": 1, "task.high": 9},
        ),
        (
            {"rewards": {"functions": [{"kind": "length", "name": "l", "minimum": 9, "maximum": 2}]}},
            "rewards.functions.0.minimum",
            "minimum (9) is above maximum (2)",
            {"rewards.functions.0.minimum": 2, "rewards.functions.0.maximum": 9},
        ),
        (
            {"rewards": {"functions": [{"kind": "format", "name": "kl_penalty"}]}},
            "rewards.functions",
            "kl_penalty is the KL penalty's",
            None,
        ),
        (
            {"optimizer": {"warmup_steps": 200}, "budget": {"steps": 100}},
            "optimizer.warmup_steps",
            "warm-up of 200 steps is longer than the run of 100",
            {"optimizer.warmup_steps": 10},
        ),
        (
            {"sampling": {"prompts_per_step": 8192, "group_size": 1024}},
            "sampling.prompts_per_step",
            "8,388,608 completions a step",
            {"sampling.prompts_per_step": 64},
        ),
        (
            {"optimizer": {"micro_batch_tokens": 48}},
            "optimizer.micro_batch_tokens",
            "cannot hold one completion of 48",
            {"optimizer.micro_batch_tokens": 192},
        ),
        ({"model": {"source": "../secrets"}}, "model.source", "names no model", None),
        ({"model": {"lora": {"target_modules": 3}}}, "model.lora.target_modules", ", or ", None),
        ({"kind": "grpo2"}, None, "'grpo'", None),
    ],
)
def test_an_error_stands_at_its_field(
    config: dict[str, Any], field: str | None, words: str, fix: dict[str, Any] | None
) -> None:
    message = refused(**config)[field]
    assert words in message.text
    assert message.fix == fix


def test_every_wrong_field_is_named_at_once() -> None:
    assert set(refused(sampling={"group_size": 0, "temperature": 0}, budget={"steps": 0})) == {
        "sampling.group_size",
        "sampling.temperature",
        "budget.steps",
    }


def test_a_fix_settles_what_it_was_offered_for() -> None:
    [message] = refused(task={"kind": "arithmetic", "operands": 2}).values()
    assert message.fix == {"task.precedence": False}
    assert isinstance(
        parse({"task": {"kind": "arithmetic", "operands": 2, "precedence": False}, "kind": "grpo"}), GrpoConfig
    )


def test_the_kind_alone_is_the_default_configuration() -> None:
    assert parse({"kind": "grpo"}) == GrpoConfig()


def test_a_configuration_without_its_kind_is_told_so() -> None:
    answer = parse({})
    assert isinstance(answer, Preflight)
    assert [message.text for message in answer.messages] == ["needs a kind"]
