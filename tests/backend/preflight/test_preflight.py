"""What preflight says about a configuration that is valid."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

import worker.models
from backend.catalog import SHAPES, TINY_ARITHMETIC
from backend.contract.config import RUN_CONFIG, TrainingConfig
from backend.contract.grpo import GrpoConfig
from backend.contract.preflight import MemoryEstimate, Message, Preflight, TimeEstimate
from backend.contract.recipes import RECIPES, SMOLLM2
from backend.contract.records import Offers
from backend.contract.sample import SampleConfig
from backend.preflight import memory
from backend.preflight.duration import OFF
from backend.preflight.facts import Facts, Given, StepTimes, Success, TimedRun
from backend.preflight.memory import Computing, training_parts
from backend.preflight.preflight import preflight

GIB = 2**30
TINY = Path(worker.models.__file__).parent / "tiny_arithmetic"
CPU = Offers(device="CPU, 2 threads", memory_bytes=24 * GIB)


def grpo(**changes: Any) -> GrpoConfig:
    return GrpoConfig.model_validate(changes)


def ranked(group_size: int) -> dict[str, Any]:
    ranking = {"kind": "ranking", "name": "better", "endpoint": "strict"}
    return {"sampling": {"group_size": group_size}, "rewards": {"functions": [ranking]}}


def about(field: str | None, answer: Preflight) -> Message:
    """The first message about a field."""
    return next(message for message in answer.messages if message.field == field)


def fields(answer: Preflight) -> list[str | None]:
    return [message.field for message in answer.messages]


def memory_of(config: TrainingConfig, *workers: Offers) -> MemoryEstimate:
    found = preflight(config, Facts(workers=workers)).memory
    assert found is not None
    return found


def time_of(config: TrainingConfig, facts: Facts) -> TimeEstimate:
    found = preflight(config, facts).time
    assert found is not None
    return found


def test_completions_are_multiplied_and_dead_groups_forecast_for_the_usual_sizes_and_the_chosen_one() -> None:
    config = grpo(sampling={"prompts_per_step": 4, "group_size": 6}, budget={"steps": 50})
    answer = preflight(config, Facts(success=Success(0.18, "measured")))
    assert (answer.completions_per_step, answer.total_completions) == (24, 1200)
    shares = {one.group_size: one.share for one in answer.dead_groups}
    assert list(shares) == [2, 4, 6, 8, 16]
    assert shares[2] == pytest.approx(0.18**2 + 0.82**2)
    assert shares[8] == pytest.approx(0.2044, abs=1e-4)
    assert (answer.success_rate, answer.success_basis) == (0.18, "measured")


def test_without_a_measurement_or_a_known_shape_nothing_is_assumed() -> None:
    answer = preflight(grpo(), Facts())
    assert (answer.success_rate, answer.success_basis, answer.dead_groups, answer.time) == (None, None, [], None)
    unknown = preflight(grpo(model={"source": "Qwen/Qwen2.5-0.5B-Instruct"}), Facts())
    assert unknown.memory is None
    assert "no memory estimate" in about("model.source", unknown).text


def test_what_is_said_has_numbers_as_people_write_them() -> None:
    answer = preflight(grpo(sampling={"group_size": 2}, optimizer={"learning_rate": 1.0}), Facts())
    assert "at least 50% of the groups are all right or all wrong" in about("sampling.group_size", answer).text
    assert "5e-5 is what works" in about("optimizer.learning_rate", answer).text


def test_what_a_recipe_is_set_to_on_purpose_is_noted_and_nothing_to_mend() -> None:
    card = next(card for card in RECIPES if card.id == "grpo-notebook")
    config = RUN_CONFIG.validate_python(card.config)
    intended = [one.field for one in preflight(config, Facts(workers=[CPU])).messages if one.intended]
    assert intended == ["sampling.top_k", "algorithm.logprobs", "algorithm.kl.estimator"]
    changed = RUN_CONFIG.validate_python({**card.config, "sampling": {"top_k": 5, "temperature": 0.7}})
    message = about("sampling.top_k", preflight(changed, Facts()))
    assert (message.level, message.fix, message.intended) == ("warning", {"sampling.top_k": 0}, False)


@pytest.mark.parametrize("card", RECIPES, ids=lambda card: card.id)
def test_a_recipe_is_ready_to_start_and_opens_with_no_warning(card: Any) -> None:
    answer = preflight(RUN_CONFIG.validate_python(card.config), Facts(workers=[CPU]))
    assert answer.ok
    assert not [message for message in answer.messages if message.level != "info" or message.fix]
    assert answer.memory is not None
    assert answer.memory.available_bytes == 24 * GIB
    assert answer.memory.total_bytes == sum(answer.memory.parts.values()) < 24 * GIB
    assert "optimizer.learning_rate" not in fields(answer)


def test_shapes_have_the_published_numbers_of_parameters_and_the_tiny_model_those_of_its_weights() -> None:
    assert SHAPES[SMOLLM2].parameters == 134_515_008
    with safe_open(TINY / "model.safetensors", "np") as tensors:
        counted = sum(tensors.get_tensor(name).size for name in tensors.keys())  # noqa: SIM118 — no mapping
    assert SHAPES[TINY_ARITHMETIC].parameters == counted


def parts(*, on_gpu: bool = True, in_half: bool = True, **changes: Any) -> dict[str, int]:
    """What a training of SmolLM2 keeps in memory."""
    source = {"source": SMOLLM2} | changes.pop("model", {})
    config = grpo(model=source, sampling={"prompts_per_step": 64, "max_new_tokens": 256}, **changes)
    return training_parts(config, SHAPES[SMOLLM2], Computing(on_gpu=on_gpu, in_half=in_half))


def test_smaller_micro_batches_adapters_and_recomputation_need_less_memory() -> None:
    usual, small = parts(), parts(optimizer={"micro_batch_tokens": 1024})
    adapted, recomputed = (parts(model=model) for model in ({"lora": {"rank": 8}}, {"gradient_checkpointing": True}))
    assert small["activations"] < usual["activations"] / 7
    assert small["logits"] < usual["logits"]
    assert recomputed["activations"] < usual["activations"] / 5
    assert adapted["optimizer"] < usual["optimizer"] / 20
    assert adapted["reference"] == 0 < usual["reference"] == usual["gradients"]
    assert parts(algorithm={"kl": {"beta": 0}})["reference"] == 0


def test_a_gpu_holds_what_it_is_told_to_in_either_precision_and_a_cpu_no_more_than_pays() -> None:
    assert parts(in_half=False)["activations"] > parts()["activations"]
    for half in (False, True):
        on_cpu = parts(on_gpu=False, in_half=half)
        assert (on_cpu["activations"], on_cpu["cache"]) == (memory.ACTIVATION_BYTES, memory.CACHE_BYTES)
        assert parts(in_half=half)["cache"] > memory.CACHE_BYTES


def test_of_several_processes_each_ones_memory_is_named_on_gpus_that_of_each_card() -> None:
    config = grpo(model={"source": SMOLLM2}, compute={"processes": 4})
    on_cpu, on_gpus = (
        memory_of(config, Offers(device=device, memory_bytes=64 * GIB, processes=4))
        for device in ("CPU, 8 threads", "NVIDIA H200")
    )
    assert on_cpu.each_bytes == on_cpu.total_bytes // 4
    assert (on_gpus.processes, on_gpus.each_bytes) == (4, on_gpus.total_bytes)
    assert memory_of(grpo()).each_bytes is None


TINY_JSON: dict[str, Any] = json.loads((TINY / "config.json").read_text())


def test_a_given_config_json_stands_for_a_model_that_is_not_known_here() -> None:
    known = preflight(grpo(), Facts(workers=[CPU], timed=[TIMED]))
    config = grpo(model={"source": "some/model"})
    answer = preflight(config, Facts(workers=[CPU], timed=[TIMED], given=Given.read(TINY_JSON)))
    assert (answer.memory, answer.time) == (known.memory, known.time)
    assert about("model.source", answer).text == "estimated from the given config.json: llama, 1 million parameters"
    other = about("model.source", preflight(config, Facts(given=Given.read(TINY_JSON | {"model_type": "phi3"}))))
    assert "phi3 is counted as if its layers were Llama's" in other.text


def test_a_config_json_of_no_use_says_why_and_gives_no_estimate() -> None:
    given = Given.read(TINY_JSON | {"num_local_experts": 8})
    answer = preflight(grpo(model={"source": "some/model"}), Facts(workers=[CPU], given=given))
    message = about("model.source", answer)
    assert (answer.memory, answer.time, answer.ok, message.level) == (None, None, True, "warning")
    experts = "llama has experts (num_local_experts), whose memory is not counted here"
    assert message.text == f"nothing can be estimated from the given config.json: {experts}"


def test_a_checkpoint_is_estimated_as_the_model_it_came_from() -> None:
    config = grpo(model={"source": "run:3@20"})
    assert preflight(config, Facts(origin=SMOLLM2)).memory == preflight(grpo(model={"source": SMOLLM2}), Facts()).memory


def test_too_little_memory_is_a_warning_with_smaller_micro_batches() -> None:
    config = grpo(
        model={"source": SMOLLM2},
        sampling={"max_new_tokens": 512, "prompts_per_step": 64},
        optimizer={"micro_batch_tokens": 65_536, "learning_rate": 1e-5},
    )
    message = about(
        "optimizer.micro_batch_tokens",
        preflight(config, Facts(workers=[Offers(device="NVIDIA L4", memory_bytes=24 * GIB)])),
    )
    assert message.fix == {"optimizer.micro_batch_tokens": 16_384}
    # On a CPU no more tokens pass at once than keep it busy, however many are configured.
    assert "optimizer.micro_batch_tokens" not in fields(preflight(config, Facts(workers=[CPU])))


@pytest.mark.parametrize(
    ("changes", "field", "level", "fix"),
    [
        ({"model": {"lora": {}}, "optimizer": {"learning_rate": 1e-5}}, "optimizer.learning_rate", "warning", 1e-4),
        ({"optimizer": {"learning_rate": 1e-3}}, "optimizer.learning_rate", "warning", None),
        ({"model": {"source": SMOLLM2}, "optimizer": {"learning_rate": 2e-4}}, "optimizer.learning_rate", "warning", 1e-5),
        ({"sampling": {"top_k": 10}}, "sampling.top_k", "warning", 0),
        ({"sampling": {"top_p": 0.9}}, "sampling.top_p", "warning", 1.0),
        ({"sampling": {"group_size": 2}}, "sampling.group_size", "warning", 8),
        ({"budget": {"checkpoint_every": 0}}, "budget.checkpoint_every", "warning", 20),
        ({"algorithm": {"kl": {"beta": 0}}}, "algorithm.kl.beta", "info", None),
        ({}, "algorithm.updates_per_batch", "info", None),
        (
            {"algorithm": {"surrogate": {"kind": "policy_gradient"}, "updates_per_batch": 2}},
            "algorithm.updates_per_batch",
            "warning",
            1,
        ),
        ({"algorithm": {"surrogate": {"kind": "cispo", "cap": 0.2}}}, "algorithm.surrogate.cap", "warning", 5.0),
        ({"algorithm": {"kl": {"estimator": "k1"}}}, "algorithm.kl.estimator", "info", "k3"),
        (ranked(128), "rewards.functions.0.max_tokens", "warning", 824),
        ({"algorithm": {"kl": {"reference": "old"}}}, "algorithm.kl.reference", "info", "initial"),
        ({}, None, "info", None),
        ({"model": {"source": "builtin:tiny"}}, "model.source", "error", TINY_ARITHMETIC),
        (
            {"sampling": {"max_new_tokens": 512}, "optimizer": {"micro_batch_tokens": 1024}},
            "sampling.max_new_tokens",
            "error",
            256,
        ),
    ],
)  # fmt: skip
def test_a_trap_is_named_at_its_field(changes: dict[str, Any], field: str | None, level: str, fix: object) -> None:
    answer = preflight(grpo(**changes), Facts())
    message = about(field, answer)
    assert message.level == level
    assert answer.ok == (level != "error")
    if fix is not None:
        assert message.fix == {field: fix}


def test_a_success_that_is_rare_and_items_that_are_few_are_named() -> None:
    rare = about("sampling.group_size", preflight(grpo(), Facts(success=Success(0.001, "measured"))))
    few = about("budget.steps", preflight(grpo(), Facts(training_items=100)))
    assert (rare.level, few.level) == ("warning", "info")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"algorithm": {"advantage": {"kind": "gae"}}, "sampling": {"group_size": 1}}, "sampling.group_size"),
        ({"algorithm": {"logprobs": "renormalized"}, "sampling": {"top_k": 10}}, "sampling.top_k"),
        (ranked(64), "rewards.functions.0.max_tokens"),
        ({"algorithm": {"kl": {"estimator": "k1", "placement": "reward"}}}, "algorithm.kl.estimator"),
        (
            {
                "algorithm": {
                    "kl": {"beta": 0},
                    "surrogate": {"kind": "dpo"},
                    "advantage": {"kind": "best_worst"},
                    "aggregation": "group_sum",
                }
            },
            "algorithm.kl.beta",
        ),
    ],
)
def test_what_is_no_trap_with_this_algorithm_is_not_named(changes: dict[str, Any], field: str) -> None:
    assert field not in fields(preflight(grpo(**changes), Facts()))


def test_the_default_run_on_a_connected_worker_has_one_thing_to_say() -> None:
    assert fields(preflight(grpo(), Facts(workers=[CPU]))) == ["algorithm.updates_per_batch"]


@pytest.mark.parametrize(
    ("sample", "completions"),
    [({"prompts": ["a", "b"], "group_size": 4}, 8), ({"task": {"kind": "arithmetic"}, "group_size": 16}, 64)],
)
def test_a_sample_counts_its_completions(sample: dict[str, Any], completions: int) -> None:
    answer = preflight(SampleConfig.model_validate(sample), Facts())
    assert (answer.ok, answer.completions_per_step) == (True, completions)


def test_a_sample_is_warned_of_what_no_worker_has_and_refused_what_the_model_cannot_hold() -> None:
    judged = {"kind": "judge", "name": "judge", "endpoint": "our-judge"}
    sample = {"prompts": ["a"], "rewards": {"functions": [judged]}, "decoding": {"max_new_tokens": 5000}}
    answer = preflight(SampleConfig.model_validate(sample), Facts(workers=[CPU]))
    assert not answer.ok
    assert [(one.level, one.field) for one in answer.messages] == [
        ("error", "decoding.max_new_tokens"),
        ("warning", "rewards.functions.0.endpoint"),
    ]
    assert "no connected worker has the judge our-judge" in answer.messages[1].text
    unscored = preflight(SampleConfig(prompts=["a"]), Facts(workers=[CPU]))
    assert (unscored.ok, unscored.messages) == (True, [])
    assert "no worker is connected" in preflight(SampleConfig(prompts=["a"]), Facts()).messages[0].text


TIMED = TimedRun(7, grpo(), TINY_ARITHMETIC, CPU.device, [0.5, 0.4, 0.6])


def test_without_a_similar_step_the_time_is_counted_at_the_rate_of_a_run_on_the_device_and_says_so() -> None:
    facts = Facts(workers=[CPU], timed=[TIMED])
    same, larger = (time_of(one, facts) for one in (grpo(), grpo(model={"source": SMOLLM2})))
    assert same.seconds_per_step == pytest.approx(0.5)
    assert larger.seconds_per_step > 20 * same.seconds_per_step
    assert set(same.parts) == {"rollout", "reference", "update"}
    assert not same.measured
    assert "at the rate of run 7 on CPU, 2 threads" in same.basis
    assert same.low_seconds == pytest.approx(0.5 / OFF)
    assert same.high_seconds == pytest.approx(0.5 * OFF)


def test_a_rate_counts_for_as_many_processes_only() -> None:
    together = grpo(compute={"processes": 2})
    alone = Facts(workers=[CPU], timed=[TIMED])
    assert preflight(together, alone).time is None
    assert (
        "no model of known shape was timed on CPU, 2 threads by 2 processes yet"
        in preflight(together, alone).time_unknown
    )
    known = time_of(together, replace(alone, timed=[TIMED, replace(TIMED, config=together, seconds=[3.0])]))
    assert known.seconds_per_step == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("workers", "source", "why"),
    [
        ([CPU], SMOLLM2, "no model of known shape was timed on CPU, 2 threads yet: a few steps of one there give its rate"),
        ([Offers(device="NVIDIA L4")], SMOLLM2, "on NVIDIA L4 the steps of other models do not say"),
        ([Offers(device="CPU, 8 threads")], SMOLLM2, "no model of known shape was timed on CPU, 8 threads yet"),
        ([CPU], "some/model", "the model's shape is not known here"),
        ([], SMOLLM2, "no worker is up"),
    ],
)  # fmt: skip
def test_a_speed_that_was_never_measured_is_not_guessed(workers: list[Offers], source: str, why: str) -> None:
    other = replace(TIMED, device="CPU, 4 threads")
    answer = preflight(grpo(model={"source": source}), Facts(workers=workers, timed=[other]))
    assert answer.time is None
    assert why in answer.time_unknown


def test_the_time_is_the_median_of_similar_steps_and_of_many_it_is_said_where_nine_of_ten_lay() -> None:
    times = [float(second) for second in range(1, 22)]
    many, few = (
        time_of(grpo(budget={"steps": 10}), Facts(step_times=StepTimes("CPU", of))) for of in (times, [1.0, 2.0, 9.0])
    )
    assert (many.low_seconds, many.seconds_per_step, many.high_seconds) == (2.0, 11.0, 20.0)
    assert (few.low_seconds, few.seconds_per_step, few.high_seconds, few.total_seconds) == (None, 2.0, None, 20.0)
    assert "3 similar steps on CPU" in few.basis


def test_measured_phases_are_the_parts_of_the_time_and_the_largest_is_named() -> None:
    times = StepTimes("CPU", [2.0, 2.0], {"rollout": [1.5, 1.5], "update": [0.4, 0.4], "reward": []})
    time = time_of(grpo(), Facts(step_times=times))
    assert time.parts == {"rollout": 1.5, "update": 0.4, "rest": pytest.approx(0.1)}
    assert "75%, goes to sampling" in time.advice
    assert "max_new_tokens" in time.advice


@pytest.mark.parametrize(
    ("changes", "part", "remedy"),
    [
        ({"model": {"source": SMOLLM2}}, "the activations that", "model.gradient_checkpointing"),
        ({"model": {"source": SMOLLM2}, "optimizer": {"micro_batch_tokens": 64}}, "two moments", "model.lora"),
        ({"model": {"source": SMOLLM2, "lora": {}}, "optimizer": {"micro_batch_tokens": 64}}, "the weights", "A smaller model"),
        (
            {"model": {"source": SMOLLM2, "lora": {}}, "sampling": {"prompts_per_step": 512, "max_new_tokens": 1024}},
            "keys and values",
            "Fewer prompts",
        ),
    ],
)  # fmt: skip
def test_what_dominates_the_memory_is_named_with_what_would_lower_it(
    changes: dict[str, Any], part: str, remedy: str
) -> None:
    sampling = {"max_new_tokens": 32} | changes.pop("sampling", {})
    optimizer = {"micro_batch_tokens": 2048} | changes.pop("optimizer", {})
    config = grpo(sampling=sampling, optimizer=optimizer, **changes)
    advice = memory_of(config, Offers(device="NVIDIA L4", memory_bytes=24 * GIB)).advice
    assert part in advice
    assert remedy in advice


def test_a_host_too_small_for_the_optimizer_is_told_of_adapters_with_a_button_for_them() -> None:
    config = grpo(model={"source": SMOLLM2}, sampling={"max_new_tokens": 24}, optimizer={"micro_batch_tokens": 512})
    small = Offers(device="CPU, 2 threads", memory_bytes=GIB)
    message = about("model.lora", preflight(config, Facts(workers=[small])))
    assert "GiB are needed and the largest worker has 1.0" in message.text
    assert message.fix is not None
    lora = {"lora": message.fix["model.lora"]}
    adapted = GrpoConfig.model_validate(config.model_dump() | {"model": config.model.model_dump() | lora})
    assert memory_of(adapted).total_bytes < 0.7 * memory_of(config, small).total_bytes


def test_a_long_system_prompt_is_counted() -> None:
    plain, long = (grpo(task={"kind": "arithmetic", "system_prompt": text}) for text in (None, "word " * 600))
    assert memory_of(long, CPU).parts["cache"] > 3 * memory_of(plain, CPU).parts["cache"]
    facts = Facts(workers=[CPU], timed=[TIMED])
    assert time_of(long, facts).seconds_per_step > time_of(plain, facts).seconds_per_step


def test_a_run_that_would_wait_for_the_nodes_of_the_only_workers_that_can_train_it_is_told() -> None:
    whole, part = (CPU.model_copy(update={"processes": 2, "missing_nodes": missing}) for missing in ([], [1]))

    def said(*workers: Offers) -> list[bool]:
        config = GrpoConfig.model_validate({"compute": {"processes": 2}})
        return [one.waits for one in preflight(config, Facts(workers=workers)).messages if "nodes" in one.text]

    assert said(part) == said(part, CPU) == [True]
    assert said(part, whole) == []


@pytest.mark.parametrize(
    ("prompts", "level", "text"),
    [
        (1, "warning", "1 prompt a step leaves 1 of 2 processes without a group"),
        (5, "info", "5 prompts a step are not divided evenly among 2 processes: 1 of them has one group more"),
        (4, None, ""),
    ],
)
def test_processes_that_have_fewer_groups_than_others_are_said(prompts: int, level: str | None, text: str) -> None:
    config = GrpoConfig.model_validate({"sampling": {"prompts_per_step": prompts}, "compute": {"processes": 2}})
    said = [one for one in preflight(config, Facts()).messages if one.field == "compute.processes"]
    assert [one.level for one in said] == ([level] if level else [])
    assert all(one.text.startswith(text) for one in said)
