"""A wrong configuration is told field by field, in words, with a fix where one is obvious."""

from typing import Any

import pytest

from backend.contract.grpo import GrpoConfig
from backend.contract.preflight import Message, Preflight
from backend.preflight.preflight import parse


def refused(config: dict[str, Any]) -> list[Message]:
    answer = parse(config)
    assert isinstance(answer, Preflight)
    assert not answer.ok
    assert all(message.level == "error" for message in answer.messages)
    return answer.messages


PAIRS = {"kind": "reward_model"}
SAMPLED: dict[str, Any] = {"kind": "sampled"}
DATA = {"kind": "dataset", "source": "upload:1"}


@pytest.mark.parametrize(
    ("config", "field", "words", "fix"),
    [
        ({"sampling": {"group_size": 0}}, "sampling.group_size", "at least 1 (got 0)", 1),
        ({"sampling": {"top_p": 1.5}}, "sampling.top_p", "at most 1", 1),
        ({"sampling": {"temperature": 11}}, "sampling.temperature", "at most 10", 10),
        ({"task": {"kind": "arithmetic", "low": 5000}}, "task.low", "at most 1000 (got 5000)", 1000),
        ({"sampling": {"groupsize": 8}}, "sampling.groupsize", "not a known field", None),
        ({"budget": {"steps": "many"}}, "budget.steps", "whole number", None),
        ({"optimizer": {"learning_rate": "abc"}}, "optimizer.learning_rate", "type a number, such as 5e-5 (got 'abc')", None),
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
            10,
        ),
        (
            {"sampling": {"prompts_per_step": 8192, "group_size": 1024}},
            "sampling.prompts_per_step",
            "8,388,608 completions a step",
            64,
        ),
        ({"optimizer": {"micro_batch_tokens": 48}}, "optimizer.micro_batch_tokens", "cannot hold one completion of 48", 192),
        ({"model": {"source": "../secrets"}}, "model.source", "names no model", None),
        ({"model": {"lora": {"target_modules": 3}}}, "model.lora.target_modules", ", or ", None),
        ({"kind": "grpo2"}, None, "'grpo'", None),
        (
            PAIRS | {"optimizer": {"micro_batch_tokens": 90}},
            "optimizer.micro_batch_tokens",
            "a micro-batch of 90 tokens cannot hold both completions of a pair",
            384,
        ),
        (
            PAIRS | {"optimizer": {"warmup_steps": 200}, "budget": {"steps": 50}},
            "optimizer.warmup_steps",
            "warm-up of 200 steps is longer than the run of 50",
            5,
        ),
        (
            PAIRS | {"pairs": SAMPLED | {"task": {"kind": "single_prompt"}}},
            "pairs.task",
            "single_prompt has one prompt",
            {"budget.eval_every": 0},
        ),
        (PAIRS | {"pairs": DATA | {"held_out": 0}}, "pairs.held_out", "held_out is 0", 0.1),
        (PAIRS | {"pairs": SAMPLED | {"task": DATA | {"held_out": 0}}}, "pairs.task.held_out", "held_out is 0", 0.1),
        (
            PAIRS | {"pairs": SAMPLED | {"task": DATA | {"answer_column": None}}},
            "pairs.task.answer_column",
            "has no answer_column",
            None,
        ),
        (PAIRS | {"pairs": SAMPLED | {"group_size": 1}}, "pairs.group_size", "at least 2", 2),
    ],
)  # fmt: skip
def test_an_error_stands_at_its_field(config: dict[str, Any], field: str | None, words: str, fix: object) -> None:
    """A fix is the field's new value, or the new values of several fields."""
    [message] = refused({"kind": "grpo"} | config)
    assert words in message.text
    assert (message.field, message.fix) == (field, fix if fix is None or isinstance(fix, dict) else {field: fix})


def test_a_fix_settles_what_it_was_offered_for_and_the_kind_alone_is_the_default_configuration() -> None:
    task: dict[str, Any] = {"kind": "arithmetic", "operands": 2}
    [message] = refused({"kind": "grpo", "task": task})
    assert message.fix == {"task.precedence": False}
    assert isinstance(parse({"kind": "grpo", "task": task | {"precedence": False}}), GrpoConfig)
    assert parse({"kind": "grpo"}) == GrpoConfig()
    assert [message.text for message in refused({})] == ["needs a kind"]
