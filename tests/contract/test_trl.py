"""A configuration as a script for TRL, and TRL's configurations read: nothing is lost on the way, executed, or left out without a word."""

import ast
import json
import re
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from backend.contract.advantage import ESTIMATORS
from backend.contract.base import Json
from backend.contract.grpo import GrpoConfig
from backend.contract.recipes import RECIPES
from backend.contract.stored import get, put
from backend.contract.surrogate import SURROGATES
from backend.contract.trl import SHARED, settings_for
from backend.contract.trl_conversion import from_settings, leaves, left_out
from backend.contract.trl_parser import is_trl, read_trl
from backend.contract.trl_script import trl_script
from backend.contract.yaml_text import Unreadable

DEFAULT: dict[str, Json] = GrpoConfig().model_dump(mode="json")
OF_GROUPS = [card.config for card in RECIPES if card.config["kind"] == "grpo"]


def script_with(argument: str, before: str = "") -> str:
    return f"{before}\nargs = GRPOConfig(num_generations=4, max_steps=10, {argument})\n"


def test_each_recipe_comes_back_from_its_script() -> None:
    for config in OF_GROUPS:
        whole = GrpoConfig.model_validate(config).model_dump(mode="json")
        assert read_trl(trl_script(whole, "a run"), {}) == (whole, [])


CHANGES: dict[str, st.SearchStrategy[Json]] = {
    "algorithm.advantage": st.sampled_from([{"kind": one} for one in ESTIMATORS]),
    "algorithm.surrogate": st.sampled_from([{"kind": one} for one in SURROGATES]),
    "algorithm.ratio": st.sampled_from(["token", "sequence_mean", "sequence_product"]),
    "algorithm.aggregation": st.sampled_from(
        ["sequence_mean", "token_mean", "constant", "sequence_sum", "group_sum", "group_token_mean"]
    ),
    "algorithm.kl": st.fixed_dictionaries(
        {
            "beta": st.sampled_from([0, 0.04]),
            "estimator": st.sampled_from(["k1", "k2", "k3"]),
            "placement": st.sampled_from(["loss", "reward"]),
            "reference": st.sampled_from(["initial", "old", "synced"]),
            "sync_every": st.integers(1, 9),
        }
    ),
    "algorithm.logprobs": st.sampled_from(["tempered", "plain"]),
    "algorithm.entropy_bonus": st.sampled_from([0, 0.01]),
    "algorithm.updates_per_batch": st.integers(1, 5),
    "algorithm.truncated_completions": st.sampled_from(["keep", "mask"]),
    "algorithm.dead_groups": st.sampled_from(["keep", "resample"]),
    "sampling.group_size": st.integers(2, 9),
    "sampling.prompts_per_step": st.integers(1, 40),
    "sampling.curriculum": st.sampled_from([None, {"half_life": 7}]),
    "sampling.stop": st.lists(st.text(min_size=1, max_size=5), max_size=3),
    "sampling.engine": st.sampled_from(["native", "vllm", "transformers"]),
    "optimizer.schedule": st.sampled_from(["constant", "linear", "cosine"]),
    "optimizer.warmup_steps": st.integers(0, 20),
    "optimizer.learning_rate": st.floats(1e-7, 1e-2),
    "optimizer.micro_batch_tokens": st.sampled_from([100, 8192]),
    "budget.eval_every": st.sampled_from([0, 7]),
    "budget.eval_samples": st.integers(1, 8),
    "budget.checkpoint_every": st.sampled_from([0, 9]),
    "budget.keep": st.fixed_dictionaries(
        {"last": st.integers(0, 3), "every": st.integers(0, 3), "best": st.booleans()}
    ),
    "model.lora": st.sampled_from([None, {"rank": 8, "target_modules": ["q_proj"]}]),
    "model.dtype": st.sampled_from(["auto", "float32", "bfloat16"]),
    "model.source": st.sampled_from(["builtin:tiny-arithmetic", "a/b@main", "run:3@40"]),
    "telemetry.token_traces": st.sampled_from(["all", "none"]),
    "compute.processes": st.sampled_from([1, 2, 3]),
    "task": st.builds(lambda text: {"kind": "single_prompt", "prompt": text or "?"}, st.text(max_size=30)),
}


@given(st.fixed_dictionaries({}, optional=CHANGES), st.sampled_from(OF_GROUPS), st.text(max_size=20))
def test_any_configuration_comes_back_from_its_script(changes: dict[str, Json], of: Json, name: str) -> None:
    for path, value in changes.items():
        of = put(of, path, value)
    try:
        config = GrpoConfig.model_validate(of).model_dump(mode="json")
    except ValidationError:
        return
    script = trl_script(config, name)
    assert read_trl(script, {}) == (config, [])
    assert ast.unparse(ast.parse(script)).count("GRPOConfig(") == 1  # no text of the configuration is code


@pytest.mark.slow  # importing TRL takes seconds
def test_names_and_defaults_are_those_of_trl() -> None:
    from trl import GRPOConfig

    known = {one.name: one.default for one in fields(GRPOConfig)}
    assert {name: known[name] for name, _, _ in SHARED} == {name: default for name, _, default in SHARED}
    configs = [GrpoConfig.model_validate(one).model_dump(mode="json") for one in OF_GROUPS]
    configs.append(put(put(DEFAULT, "algorithm.kl.reference", "synced"), "model.lora", {"rank": 1}))  # type: ignore[arg-type]
    written = {name for one in configs for name in settings_for(one)}
    assert written - known.keys() == {"use_peft", "lora_r", "lora_alpha", "lora_target_modules"}  # of LoraConfig


@pytest.mark.slow  # importing TRL takes seconds
def test_each_option_of_trl_is_taken_or_said_by_its_name_and_its_default_is_neither() -> None:
    from trl import GRPOConfig, ModelConfig

    def read(**settings: Json) -> tuple[Json, list[str]]:
        try:
            return from_settings({"use_peft": True, **settings}, DEFAULT)
        except Unreadable as refusal:
            return None, [str(refusal)]

    silent, remarks = read()
    for one in (*fields(GRPOConfig), *(one for one in fields(ModelConfig) if one.name != "use_peft")):
        default = one.default
        if isinstance(default, bool | int | float | str):
            assert read(**{one.name: default}) == (silent, remarks), one.name
        is_text = isinstance(default, str) or one.name == "model_name_or_path"
        default = True if one.name == "activation_checkpointing" else default  # None: the older name says it
        other: Json = not default if isinstance(default, bool) else "other" if is_text else 7
        config, said = read(**{one.name: other})
        assert config not in (silent, None) or any(f"`{one.name}`" in line for line in said if line not in remarks), (
            one.name
        )


def test_what_trl_lacks_stands_in_the_script_with_the_reason() -> None:
    config = put(put(DEFAULT, "algorithm.dead_groups", "resample"), "sampling.stop", ["\n# not a comment"])
    assert isinstance(config, dict)
    missing = left_out(config)
    assert {"algorithm.dead_groups", "sampling.stop", "algorithm.advantage"} <= missing.keys()
    script = trl_script(config, "a run")
    for path, (_, why) in missing.items():
        assert f'    # {why}\n    "{path}": ' in script


def test_every_setting_is_either_in_trls_words_or_left_out_with_a_reason() -> None:
    config = GrpoConfig().model_dump(mode="json")
    for path, value in leaves(config):
        other: Json = not value if isinstance(value, bool) else value + 1 if isinstance(value, int | float) else None
        if other is None:
            continue  # what is chosen by name has its own cases above
        changed = put(config, path, other)
        assert isinstance(changed, dict)
        before, after = trl_script(config, "a"), trl_script(changed, "a")
        assert before != after, path


def test_what_somebody_changes_in_the_script_is_meant() -> None:
    script = trl_script(DEFAULT, "a run")
    config, remarks = read_trl(script.replace("learning_rate=5e-05", "learning_rate=0.001"), {})
    assert (config, remarks) == (put(DEFAULT, "optimizer.learning_rate", 0.001), [])
    config, remarks = read_trl(script.replace('scale_rewards="group"', 'scale_rewards="none"'), {})
    assert get(config, "algorithm.advantage.kind") == "group_center"
    assert remarks == ["algorithm.advantage does not go with GRPOConfig as it is now, and is left out"]


@pytest.mark.parametrize(
    ("arguments", "adapts"),
    [
        ("peft_config=lora", True),
        ("**more", True),
        ("2, 3, 4, 5, 6, 7, 8, 9, lora", True),
        ("peft_config=None", False),
        ("", False),
    ],
)
def test_an_adapter_counts_if_the_trainer_gets_it(arguments: str, adapts: bool) -> None:
    text = script_with("seed=1", "lora = LoraConfig(r=4)") + f"GRPOTrainer('gpt2', {arguments})"
    config, remarks = read_trl(text, DEFAULT)
    assert (get(config, "model.lora") is not None) == adapts
    assert any(one.startswith("`LoraConfig` is not passed on") for one in remarks) != adapts
    wrapped = text.replace("'gpt2'", "get_peft_model(model, lora)")
    assert get(read_trl(wrapped, DEFAULT)[0], "model.lora") is not None


def test_a_script_of_somebody_is_read_by_its_literals() -> None:
    text = """
import os
raise SystemExit("never executed")
RATE = 2e-6
dataset = load_dataset("trl-lib/DeepMath-103K", split="train")
peft = LoraConfig(r=4, target_modules=["q_proj"])
args = GRPOConfig(
    "out", learning_rate=RATE, per_device_train_batch_size=8, gradient_accumulation_steps=2, num_generations=4,
    max_steps=300, max_completion_length=int(os.environ["LENGTH"]), loss_type="dr_grpo", scale_rewards=False, epsilon_high=0.28,
    importance_sampling_level="sequence", min_p=0.05, warmup_steps=0.1, beta=0.04, **more,
)
trainer = GRPOTrainer(model="Qwen/Qwen2.5-0.5B", reward_funcs=accuracy_reward, args=args, peft_config=peft)
"""
    config, remarks = read_trl(text, DEFAULT)
    optimizer = {"learning_rate": 2e-6, "schedule": "linear", "warmup_steps": 30}
    expected: dict[str, Json] = {
        "model.source": "Qwen/Qwen2.5-0.5B",
        "model.lora": {"rank": 4, "alpha": 8, "target_modules": ["q_proj"]},
        "task.source": "hub:trl-lib/DeepMath-103K",
        "sampling.prompts_per_step": 4,
        "sampling.max_new_tokens": get(DEFAULT, "sampling.max_new_tokens"),
        "optimizer": GrpoConfig().optimizer.model_dump() | optimizer,
        "algorithm.aggregation": "constant",
        "algorithm.ratio": "sequence_mean",
        "algorithm.advantage": {"kind": "group_center"},
        "algorithm.surrogate.epsilon_high": 0.28,
    }
    assert {path: get(config, path) for path in expected} == expected
    assert [one for one in remarks if "line" in one] == [
        "`max_completion_length` is computed in line 9: set it here",
        "line 10 passes on **more, whose values are not read: set them here",
    ]
    rest = "\n".join(remarks)
    for name in ("accuracy_reward", "`min_p` 0.05", "use_bias_correction_kl", "DeepMath"):
        assert name in rest


@pytest.mark.parametrize(
    "again",
    [
        "RATE *= 10",
        "for RATE in (1e-3, 1e-4): pass",
        "from settings import rate as RATE",
        "import RATE.of_mine",
        "try: pass\nexcept OSError as RATE: pass",
        "del RATE",
        "def RATE(): pass",
        "match x:\n    case [*RATE]: pass",
        "match x:\n    case {**RATE}: pass",
        "RATE['of'] = 1",
        "RATE.update(of=1)",
    ],
)
def test_a_name_that_gets_another_value_is_not_read(again: str) -> None:
    config, remarks = read_trl(script_with("learning_rate=RATE", f"RATE = 1e-6\n{again}"), DEFAULT)
    assert get(config, "optimizer.learning_rate") == get(DEFAULT, "optimizer.learning_rate")
    assert any(one.startswith("`learning_rate` is computed") for one in remarks)


@pytest.mark.parametrize(
    "change",
    ["args.learning_rate = 3e-5", "setattr(args, 'learning_rate', 1)", "args = replace(args, learning_rate=1)"],
)
def test_a_setting_that_is_changed_later_stays_the_forms_and_is_said(change: str) -> None:
    config, remarks = read_trl(f"args = GRPOConfig(max_steps=4, learning_rate=1e-5)\n{change}\n", DEFAULT)
    assert (get(config, "optimizer.learning_rate"), get(config, "budget.steps")) == (
        get(DEFAULT, "optimizer.learning_rate"),
        4,
    )
    assert "`learning_rate` gets another value in line 2: set it here" in remarks


def test_the_model_and_the_rewards_of_a_trainer_are_read_by_their_places() -> None:
    config, remarks = read_trl("args = GRPOConfig(max_steps=4)\nGRPOTrainer('a/b', [score], args)\n", DEFAULT)
    assert get(config, "model.source") == "a/b"
    assert any(one.startswith("`reward_funcs` are [score]") for one in remarks)


def test_an_argument_is_not_the_global_of_its_name() -> None:
    text = "beta = 0.5\ndef main(beta):\n    return GRPOConfig(beta=beta, max_steps=3)\nmain(0.1)\n"
    config, remarks = read_trl(text, DEFAULT)
    assert get(config, "algorithm.kl.beta") == get(DEFAULT, "algorithm.kl.beta")
    assert "`beta` is computed in line 3: set it here" in remarks


ON_THE_BASE: dict[str, Json] = {
    "optimizer.schedule": "cosine",
    "optimizer.warmup_steps": 7,
    "algorithm.surrogate": {"kind": "clip", "epsilon_low": 0.1, "epsilon_high": 0.3, "delta": 4.0},
    "algorithm.aggregation": "constant",
    "algorithm.advantage": {"kind": "group_center"},
    "algorithm.ratio": "sequence_mean",
    "algorithm.kl.reference": "synced",
    "algorithm.kl.sync_every": 9,
    "algorithm.truncated_completions": "mask",
    "algorithm.updates_per_batch": 2,
    "sampling.engine": "vllm",
    "sampling.prompts_per_step": 3,
    "budget.steps": 11,
    "budget.eval_every": 7,
    "budget.checkpoint_every": 5,
    "budget.keep.last": 9,
    "budget.eval_samples": 6,
    "model.lora": {"rank": 3, "alpha": 5, "target_modules": ["q_proj"]},
}


@pytest.mark.parametrize(
    ("settings", "paths"),
    [
        ("eval_strategy", ["budget.eval_every"]),
        ("eval_strategy='steps', eval_steps", ["budget.eval_every"]),
        ("save_strategy", ["budget.checkpoint_every"]),
        ("save_steps", ["budget.checkpoint_every"]),
        ("save_total_limit", ["budget.keep.last"]),
        ("mask_truncated_completions", ["algorithm.truncated_completions"]),
        ("use_vllm", ["sampling.engine"]),
        ("use_transformers_continuous_batching", ["sampling.engine"]),
        ("sync_ref_model", ["algorithm.kl.reference", "algorithm.kl.sync_every"]),
        ("sync_ref_model=True, ref_model_sync_steps", ["algorithm.kl.reference", "algorithm.kl.sync_every"]),
        ("lr_scheduler_type", ["optimizer.schedule"]),
        ("warmup_steps", ["optimizer.warmup_steps"]),
        ("warmup_ratio", ["optimizer.warmup_steps"]),
        ("warmup_ratio=0.1, max_steps", ["optimizer.warmup_steps", "budget.steps"]),
        ("num_iterations", ["algorithm.updates_per_batch"]),
        ("loss_type", ["algorithm.surrogate", "algorithm.aggregation"]),
        ("epsilon", ["algorithm.surrogate.epsilon_low", "algorithm.surrogate.epsilon_high"]),
        ("epsilon_high", ["algorithm.surrogate.epsilon_high"]),
        ("delta", ["algorithm.surrogate.delta"]),
        ("scale_rewards", ["algorithm.advantage"]),
        ("multi_objective_aggregation", ["algorithm.advantage"]),
        ("importance_sampling_level", ["algorithm.ratio"]),
        ("num_generations", ["sampling.group_size", "sampling.prompts_per_step"]),
        ("eval_strategy='steps', num_generations_eval", ["budget.eval_samples"]),
        ("use_peft", ["model.lora"]),
        ("use_peft=True, lora_r", ["model.lora.rank"]),
        ("use_peft=True, lora_target_modules", ["model.lora.target_modules"]),
    ],
)
def test_what_is_computed_stays_as_it_was_in_the_form(settings: str, paths: list[str]) -> None:
    base: Json = DEFAULT
    for path, value in ON_THE_BASE.items():
        base = put(base, path, value)
    assert isinstance(base, dict)
    config, remarks = read_trl(f"args = GRPOConfig({settings}=of_mine())\n", base)
    assert {path: get(config, path) for path in paths} == {path: get(base, path) for path in paths}
    assert f"`{settings.split()[-1]}` is computed in line 1: set it here" in remarks


@pytest.mark.slow  # importing TRL takes seconds
def test_trls_own_dump_reads_without_a_word_about_what_is_off(tmp_path: Any) -> None:
    from trl import GRPOConfig

    args = GRPOConfig(output_dir=str(tmp_path), max_steps=6, bf16=False, use_cpu=True, save_strategy="no")
    text = args.to_json_string()
    assert is_trl(text)
    config, remarks = read_trl(text, DEFAULT)
    assert all(one.startswith("passed over") for one in remarks)
    assert get(config, "budget.steps") == 6
    assert get(config, "optimizer.learning_rate") == 1e-6
    assert get(config, "sampling.prompts_per_step") == 1


def test_numbers_that_yaml_takes_for_texts_are_numbers() -> None:
    text = "learning_rate: 1e-6\nmax_steps: 10\nbeta: 0.1\nuse_bias_correction_kl: false\nmodel_name_or_path: a/b\ndtype: bfloat16\nsystem_prompt: Be brief.\n"
    assert is_trl(text)
    config, remarks = read_trl(text, DEFAULT)
    paths = ("optimizer.learning_rate", "model.source", "task.system_prompt")
    assert [get(config, path) for path in paths] == [1e-6, "a/b", "Be brief."]
    assert remarks == ["`dtype` 'bfloat16' has no counterpart here"]


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        (script_with("loss_type='other'"), "`loss_type` 'other' has no counterpart"),
        (script_with("loss_type=kind()"), "`loss_type` is computed in line 2"),
        (script_with("lr_scheduler_type='polynomial'"), "the schedules here are constant, linear and cosine"),
        (script_with("num_iterations=3"), "`max_steps` is 10, which is not a number of steps, and each step makes 3 updates"),
        (script_with("steps_per_generation=4"), "each update sees all of it"),
        (script_with("per_device_train_batch_size=6"), "6 rows do not divide into groups of 4"),
        (script_with("sync_ref_model=True"), "`ref_model_mixup_alpha` is 0.6"),
        (script_with("optim='sgd'"), "the optimizer here is AdamW"),
        (script_with("warmup_ratio=0.1").replace("max_steps=10, ", ""), "`warmup_ratio` 0.1 is a share of steps whose number"),
        (script_with("warmup_steps=3, lr_scheduler_type='constant'"), "`warmup_steps` does nothing in TRL"),
        (script_with("lr_scheduler_kwargs={'min_lr': 1}"), "`lr_scheduler_kwargs` {'min_lr': 1} has no counterpart"),
        (script_with("shuffle_dataset=False, ddp_backend='gloo'"), "`shuffle_dataset` False has no counterpart"),
        (script_with("save_steps=3, logging_steps=1, save_strategy='no'"), "go with what is off: `save_steps`, `logging_steps`"),
        (script_with("seed=1", "p = LoraConfig(lora_dropout=0.1, bias='none', task_type=CAUSAL, use_dora=True)"), "`lora_dropout` 0.1"),
        (script_with("seed=1", "t = GRPOTrainer(model='a/b', tools=[add])"), "`tools` of GRPOTrainer has no counterpart here: [add]"),
        (script_with("reward_weights=[1, 2, 3]"), "`reward_weights` are 3, and the form has 2 rewards"),
        (script_with("seed=1e999"), "`seed` is computed in line 2"),
        (script_with("seed=1") * 2, "there are 2 of `GRPOConfig(…)`"),
        ("args = GRPOConfig()", "set budget.steps here"),
    ],
)  # fmt: skip
def test_what_has_no_counterpart_is_said(text: str, remark: str) -> None:
    _, remarks = read_trl(text, DEFAULT)
    assert remark in "\n".join(remarks)


def test_the_revision_of_a_model_is_a_part_of_its_source_or_refused_by_its_name() -> None:
    trainer = "t = GRPOTrainer(model='a/b')"
    for argument in ("model_init_kwargs={'revision': 'v2'}", "model_revision='v2'"):
        assert get(read_trl(script_with(argument, trainer), DEFAULT)[0], "model.source") == "a/b@v2"
    for before in ("", "t = GRPOTrainer(model='./here')", "t = GRPOTrainer(model=chosen())"):
        with pytest.raises(Unreadable, match="`model_revision` 'v2' cannot be taken"):
            read_trl(script_with("model_revision='v2'", before), DEFAULT)


NESTED = 100_000


@pytest.mark.parametrize(
    "text",
    [
        "GRPOConfig(" + "(" * NESTED,
        f"x = GRPOConfig({'-' * NESTED}1)",
        f"x = GRPOConfig(seed={'[' * 150}{']' * 150}) + {'a.' * NESTED}b",
        f"x = GRPOConfig() {'+ 1' * NESTED}",
        "GRPOConfig(\x00)",
        "GRPOConfig(seed=" + "9" * 5000 + ")",
        "GRPOConfig(" + "a" * 2**21,
        "GRPOConfig(seed='\\ud800')",
        "def f(:\n GRPOConfig()",
        "learning_rate: &a [1]\nmax_steps: *a",
        '{"learning_rate": ' + "[" * NESTED + "}",
        '{"learning_rate": NaN}',
        "- 1",
    ],
)  # fmt: skip
def test_a_hostile_text_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(Unreadable) as refused:
        read_trl(text, DEFAULT)
    assert 10 < len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "value", ["-1", "0", "10**9", "1e300", "'x'", "[1]", "{'a': 1}", "None", "True", "9223372036854775807"]
)
def test_no_value_of_a_setting_ends_the_reading(value: str) -> None:
    script = trl_script(DEFAULT, "a")
    written = re.findall(r"(\w+)=", script.partition("GRPOConfig(")[2])
    for name in sorted({*written, *(name for name, _, _ in SHARED)}):
        config, _ = read_trl(f"GRPOConfig({name}={value})", DEFAULT)
        json.dumps(config, allow_nan=False)
        read_trl(re.sub(rf"\b{name}=.*,\n", f"{name}={value},\n", script), {})


def test_silence_is_trls_default_and_what_is_computed_stays_the_forms() -> None:
    silent, _ = from_settings({}, DEFAULT)
    names = {"temperature", "learning_rate", "loss_type", "scale_rewards", "max_steps"}
    computed, _ = from_settings({}, DEFAULT, names)
    for said, every in (({}, 10), ({"logging_steps": 7}, 7), ({"eval_steps": 3}, 3)):
        evaluated, _ = from_settings({"eval_strategy": "steps", **said}, DEFAULT)
        assert get(evaluated, "budget.eval_every") == every
    assert (get(silent, "optimizer.learning_rate"), get(silent, "algorithm.aggregation")) == (1e-6, "token_mean")
    for path in ("optimizer.learning_rate", "algorithm.aggregation", "algorithm.advantage", "budget.steps"):
        assert get(computed, path) == get(DEFAULT, path)
