"""Every combination of the axes either means something and trains, or is refused with the reason and a way out."""

import math
from collections.abc import Mapping
from itertools import product
from typing import Any, get_args

import pytest
import torch
from pydantic import ValidationError
from test_learner_axes import step
from worker_models import random_policy, roll_out

from backend.contract.advantage import Advantage
from backend.contract.algorithm import Algorithm
from backend.contract.grpo import GrpoConfig
from backend.contract.preflight import Message, Preflight
from backend.contract.surrogate import Surrogate
from backend.preflight.preflight import parse
from worker.learner import Learner


def kinds(union: Any) -> list[str]:
    return [member.model_fields["kind"].default for member in get_args(get_args(union)[0])]


def choices(field: str) -> list[str]:
    return list(get_args(Algorithm.model_fields[field].annotation))


AXES = list(product(kinds(Advantage), kinds(Surrogate), choices("ratio")))
FIXES_AT_MOST = 4


def configured(**algorithm: object) -> dict[str, Any]:
    return {
        "kind": "grpo",
        "algorithm": algorithm,
        "sampling": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 6},
        "optimizer": {"learning_rate": 1e-3},
    }


def refusal(config: Mapping[str, Any]) -> Message | None:
    answer = parse(config)
    return answer.messages[0] if isinstance(answer, Preflight) else None


def mended(config: dict[str, Any], message: Message) -> dict[str, Any]:
    assert message.fix, message.text
    for path, value in message.fix.items():
        *parents, last = path.split(".")
        place = config
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return config


@pytest.mark.parametrize("aggregation", choices("aggregation"))
@pytest.mark.parametrize("placement", ["loss", "reward"])
@pytest.mark.parametrize("reference", ["initial", "old", "synced"])
def test_a_refused_combination_says_why_and_its_fixes_lead_to_one_that_is_not(
    aggregation: str, placement: str, reference: str
) -> None:
    for advantage, surrogate, ratio in AXES:
        config = configured(
            advantage={"kind": advantage},
            surrogate={"kind": surrogate},
            ratio=ratio,
            aggregation=aggregation,
            kl={"placement": placement, "reference": reference},
        )
        for _ in range(FIXES_AT_MOST):
            message = refusal(config)
            if message is None:
                break
            assert message.field is not None
            assert len(message.text) > 40
            config = mended(config, message)
        assert refusal(config) is None, config["algorithm"]


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"algorithm.ratio": "sequence_mean", "algorithm.surrogate": {"kind": "policy_gradient"}}, "algorithm.ratio", "uses no ratio"),
        ({"algorithm.surrogate": {"kind": "vespo"}}, "algorithm.ratio", "whole completions"),
        ({"algorithm.surrogate": {"kind": "dpo"}}, "algorithm.advantage", "best completion of a group with its worst"),
        ({"algorithm.surrogate": {"kind": "dpo"}, "algorithm.advantage": {"kind": "best_worst"}}, "algorithm.aggregation", "one loss for each group"),
        ({"algorithm.advantage": {"kind": "gae"}, "algorithm.ratio": "sequence_mean"}, "algorithm.ratio", "each token an advantage"),
        ({"algorithm.kl": {"placement": "reward", "reference": "old"}}, "algorithm.kl.reference", "always be 0"),
        ({"algorithm.kl": {"placement": "reward"}, "algorithm.advantage": {"kind": "normalize_then_sum"}}, "algorithm.kl.placement", "by itself"),
        ({"algorithm.logprobs": "renormalized"}, "algorithm.logprobs", "both are off"),
        ({"sampling.group_size": 1}, "sampling.group_size", "a group of 1 has none"),
        ({"sampling.group_size": 1, "algorithm.advantage": {"kind": "none"}, "algorithm.dead_groups": "resample"}, "sampling.group_size", "resample"),
        (
            {"algorithm.advantage": {"kind": "normalize_then_sum"}, "rewards.gates": [{"reward": "correctness", "requires": "format"}]},
            "rewards.gates",
            "a gate would drop scores of one because of another",
        ),
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused_at_its_field_with_the_reason(
    change: dict[str, Any], field: str, words: str
) -> None:
    message = refusal(mended({"kind": "grpo"}, Message(level="error", text="", fix=change)))
    assert message is not None
    assert (message.field, words in message.text) == (field, True), message.text


def test_a_group_of_one_is_enough_where_nothing_compares_siblings() -> None:
    for kind in ("none", "batch_baseline", "gae"):
        assert GrpoConfig.model_validate({"algorithm": {"advantage": {"kind": kind}}, "sampling": {"group_size": 1}})


@pytest.mark.slow
def test_every_combination_that_is_accepted_trains() -> None:
    rewards = [1.0, 0.0, 0.5, 0.0, 1.0, 1.0, 0.0, 0.25]
    policy = random_policy(vocabulary=300, dtype=torch.float32)
    rollout = roll_out(policy, GrpoConfig.model_validate(configured()))
    trained = 0
    for number, (advantage, surrogate, ratio) in enumerate(AXES):
        changes = {"advantage": {"kind": advantage}, "surrogate": {"kind": surrogate}, "ratio": ratio}
        aggregation = "group_sum" if surrogate == "dpo" else "token_mean"
        kl = {"placement": ("loss", "reward")[number % 2]}
        try:
            changed = configured(**changes, aggregation=aggregation, kl=kl, updates_per_batch=2)
            config = GrpoConfig.model_validate(changed)
        except ValidationError:
            continue
        policy.value_head = None
        _, _, update = step(Learner(policy, config), config, rollout, rewards)
        assert update.applied
        assert update.moved
        assert math.isfinite(update.metrics["loss"])
        trained += 1
    assert trained > 80
