"""TRL's settings converted into a configuration of ours, and what each side has nothing like.

A script that this program wrote has both halves: TRL's settings, and beside them what they cannot say.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from backend.contract.base import Json
from backend.contract.grpo import GrpoConfig
from backend.contract.model import ModelSource
from backend.contract.stored import get, number_at, put, reward_functions
from backend.contract.surrogate import Surrogate
from backend.contract.trl import (
    ADVANTAGES,
    LOSSES,
    PARAMETERS,
    SHARED,
    Settings,
    advantage_of,
    settings_for,
    surrogate_of,
)
from backend.contract.yaml_text import Unreadable

TRL_DEFAULTS: dict[str, Json] = {
    "algorithm.advantage": ADVANTAGES["group"],
    "telemetry.token_traces": "all",
    "telemetry.probe_prompts": 0,
    "budget.keep.best": False,
}
"""How TRL trains and `watch` records, where no setting says it, as far as our defaults are others."""

LACKS = {
    "algorithm.advantage": "TRL divides by the standard deviation (over G - 1, plus 1e-4) of the group or of the batch, or not at all",
    "algorithm.surrogate": "TRL has no such loss; loss_type is the nearest",
    "algorithm.ratio": "TRL has a ratio for each token, or their geometric mean over the completion",
    "algorithm.aggregation": "TRL's loss_type decides that, too, and has nothing nearer",
    "algorithm.kl.estimator": "TRL has k3",
    "algorithm.kl.placement": "TRL has the penalty in the loss",
    "algorithm.kl": "TRL's reference is the initial weights, or a synced copy",
    "algorithm.logprobs": "TRL's are of all tokens at the temperature of sampling",
    "algorithm.dead_groups": "TRL trains on with dead groups",
    "algorithm.resample_rounds": "TRL resamples no group",
    "sampling.stop": "TRL ends a completion at the end token or at the limit",
    "sampling.curriculum": "TRL draws one prompt after the other",
    "optimizer.micro_batch_tokens": "TRL counts rows: per_device_train_batch_size",
    "budget.keep": "TRL keeps the newest checkpoints (save_total_limit)",
    "budget.eval_samples": "evaluation is off",
    "telemetry": "watch records the tokens of every completion; TRL has no probes",
}
"""Why TRL has nothing like a setting of ours; the longest path that fits says it."""

_PASSED_OVER = frozenset("""
    accelerator_config activation_checkpointing_kwargs attn_implementation
    average_tokens_across_devices batch_eval_metrics bf16_full_eval cache_implementation dataloader_drop_last
    dataloader_in_order dataloader_multiprocessing_context dataloader_num_workers dataloader_persistent_workers
    dataloader_pin_memory dataloader_prefetch_factor ddp_backend ddp_broadcast_buffers ddp_bucket_cap_mb
    ddp_find_unused_parameters ddp_static_graph ddp_timeout debug deepspeed delta disable_dropout disable_tqdm do_eval
    do_predict do_train ds3_gather_for_generation enable_jit_checkpoint epsilon epsilon_high eval_accumulation_steps
    eval_do_concat_batches eval_on_start eval_steps eval_use_gather_object fp16_full_eval fsdp fsdp_config full_determinism
    gradient_checkpointing_kwargs greater_is_better hub_always_push hub_model_id hub_private_repo hub_revision hub_strategy
    hub_token ignore_bias_buffers ignore_data_skip include_for_metrics include_num_input_tokens_seen label_names
    length_column_name liger_kernel_config local_rank log_completions log_completions_hub_repo log_level log_level_replica
    log_multimodal log_on_each_node log_unique_prompts logging_dir logging_first_step logging_nan_inf_filter logging_steps
    logging_strategy metric_for_best_model num_completions_to_print num_generations_eval num_train_epochs output_dir
    pad_to_multiple_of parallelism_config per_device_eval_batch_size prediction_loss_only project push_to_hub
    ref_model_mixup_alpha ref_model_sync_steps remove_unused_columns report_to restore_callback_states_from_checkpoint run_name
    sapo_temperature_neg sapo_temperature_pos save_on_each_node save_only_model save_steps skip_memory_metrics tf32
    torch_compile torch_compile_backend torch_compile_mode torch_empty_cache_steps trackio_bucket_id trackio_space_id
    trackio_static_space_id train_sampling_strategy transformers_continuous_batching_config use_bias_correction_kl use_cache
    use_cpu use_liger_kernel vespo_k_neg vespo_k_pos vespo_lambda_neg vespo_lambda_pos vllm_enable_sleep_mode
    vllm_gpu_memory_utilization vllm_group_port vllm_max_model_length vllm_mode vllm_model_impl vllm_server_base_url
    vllm_server_host vllm_server_port vllm_server_timeout vllm_tensor_parallel_size
""".split())  # fmt: skip
"""How TRL runs, stores and logs, and what is read with another setting if that is on. Any other name is said."""
_WHY_PASSED = "passed over, as they say how TRL runs, stores or logs, or go with what is off: "
_OFF: dict[str, Json] = {
    "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8, "average_tokens_across_devices": True,
    "bnb_4bit_quant_type": "nf4", "dataloader_in_order": True, "dataloader_pin_memory": True, "dataset_test_split": "test",
    "dataset_train_split": "train", "ddp_timeout": 1800, "ds3_gather_for_generation": True, "dtype": "float32",
    "entropy_coef_delta": 0.005, "entropy_coef_max": 1.0, "entropy_target": 0.2, "epsilon": 0.2, "eval_do_concat_batches": True,
    "hub_strategy": "every_save", "include_num_input_tokens_seen": "no", "length_column_name": "length", "local_rank": -1,
    "num_train_epochs": 3.0, "log_level": "passive", "log_level_replica": "warning", "log_multimodal": True,
    "log_on_each_node": True, "logging_nan_inf_filter": True, "logging_steps": 10, "logging_strategy": "steps",
    "lora_task_type": "CAUSAL_LM", "pad_to_multiple_of": "auto", "per_device_eval_batch_size": 8, "project": "huggingface",
    "ref_model_mixup_alpha": 0.6, "ref_model_sync_steps": 512, "repetition_penalty": 1.0, "report_to": "none",
    "sapo_temperature_neg": 1.05, "sapo_temperature_pos": 1.0, "save_steps": 500, "shuffle_dataset": True,
    "skip_memory_metrics": True, "top_entropy_quantile": 1.0, "train_sampling_strategy": "random",
    "use_bias_correction_kl": True, "vespo_k_neg": 3.0, "vespo_k_pos": 2.0, "vespo_lambda_neg": 2.0, "vespo_lambda_pos": 3.0,
    "vllm_gpu_memory_utilization": 0.3, "vllm_group_port": 51216, "vllm_importance_sampling_clip_max": 3.0,
    "vllm_importance_sampling_correction": True, "vllm_importance_sampling_mode": "sequence_mask", "vllm_mode": "colocate",
    "vllm_model_impl": "vllm", "vllm_server_host": "0.0.0.0", "vllm_server_port": 8000, "vllm_server_timeout": 240.0,  # noqa: S104 — compared, not bound
    "vllm_tensor_parallel_size": 1,
}  # fmt: skip
"""TRL's defaults of what has no counterpart, as far as they are not empty."""
_ADAMW = ("adamw_torch", "adamw_torch_fused", "adamw_apex_fused", "adamw_torch_xla", "adamw_hf")
_OF_THE_MACHINE = ("per_device_train_batch_size", "gradient_accumulation_steps")


def from_settings(
    theirs: Settings, base: Settings, computed: Collection[str] = ()
) -> tuple[dict[str, Json], list[str]]:
    """The base with what TRL's settings say, where they are silent with TRL's defaults, and a line for each that has no counterpart.

    What is `computed` keeps the base's value. The result may break rules of GrpoConfig: the form says which.
    """
    reading = _Reading(theirs, dict(base), computed)
    reading.read()
    return reading.config, reading.remarks


@dataclass
class _Reading:
    theirs: Settings
    config: dict[str, Json]
    computed: Collection[str]
    remarks: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=lambda: {name for name, _, _ in SHARED})

    def read(self) -> None:
        for name, ours, default in SHARED:
            self.put(ours, self.of(name, default), name)
        if isinstance(recomputed := self.of("activation_checkpointing"), bool):  # the newer name, which wins
            self.put("model.gradient_checkpointing", recomputed, "activation_checkpointing")
        self.updates = max(1, int(number_at(self.config, "algorithm.updates_per_batch", 1)))
        self.group()
        self.schedule()
        self.algorithm()
        self.budget()
        self.model()
        self.lacking()

    def of(self, name: str, default: Json = None) -> Json:
        """A setting; a number that YAML or a command line took for a text, as 1e-6 is, is one again."""
        self.used.add(name)
        value = self.theirs.get(name)
        if value is None:
            return default
        return _as_number(value) if isinstance(default, float) else value

    def put(self, path: str, value: Json, *of: str) -> None:
        """Unless one of the settings is computed that it is made of."""
        if not set(of) & set(self.computed):
            self.config = cast("dict[str, Json]", put(self.config, path, value))

    def say(self, text: str) -> None:
        self.remarks.append(text)

    def steps(self, name: str, path: str) -> None:
        """A number of updates as one of steps."""
        value = self.of(name, 0)
        if name in self.computed or value == 0:
            return
        if not isinstance(value, int | float) or isinstance(value, bool) or value < 1 or value % self.updates:
            each = f", and each step makes {self.updates} updates" if self.updates > 1 else ""
            self.say(f"`{name}` is {value!r}, which is not a number of steps{each}: set {path} here")
        else:
            self.put(path, int(value) // self.updates)

    def group(self) -> None:
        names = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation")
        each, passes, generation = (self.of(name, default) for name, default in zip(names, (8, 1, None), strict=True))
        size = number_at(self.config, "sampling.group_size", 0)
        rows = self.of("generation_batch_size")
        if rows is None and isinstance(each, int) and isinstance(passes, int):
            rows = each * (generation if isinstance(generation, int) else passes)
            rows *= int(number_at(self.config, "compute.processes", 1))
        made_of = (*names, "generation_batch_size", "num_generations")
        if set(made_of) & set(self.computed):
            return
        if not isinstance(rows, int) or size < 1 or rows % size:
            given = ", ".join(f"`{name}`" for name in made_of if name in self.theirs)
            self.say(
                f"{rows} rows do not divide into groups of {size:g}: set sampling.prompts_per_step here, in place of {given}"
            )
            return
        self.put("sampling.prompts_per_step", int(rows // size))
        if isinstance(generation, int) and generation != passes:
            self.say(
                f"`steps_per_generation` is {generation}: TRL divides a batch among several updates, and here each update sees all of it"
            )

    def schedule(self) -> None:
        kinds: dict[str, Json] = {"constant": "constant", "constant_with_warmup": "constant", "linear": "linear", "cosine": "cosine"}  # fmt: skip
        kind = str(self.of("lr_scheduler_type", "linear"))
        if kind in kinds:
            self.put("optimizer.schedule", kinds[kind], "lr_scheduler_type")
        else:
            self.say(
                f"`lr_scheduler_type` {kind!r} has no counterpart: the schedules here are constant, linear and cosine"
            )
        warmup, share = self.of("warmup_steps", 0), self.of("warmup_ratio", 0.0)
        name = "warmup_steps" if warmup else "warmup_ratio"
        share = warmup if isinstance(warmup, float) and 0 < warmup < 1 else (0.0 if warmup else share)
        total, made_of = self.of("max_steps", -1), ("warmup_steps", "warmup_ratio")
        if kind == "constant" and (warmup or share):  # transformers' constant schedule takes no warm-up
            self.put("optimizer.warmup_steps", 0, *made_of)
            self.say(f"`{name}` does nothing in TRL if `lr_scheduler_type` is constant, and is left out")
        elif isinstance(share, float) and 0 < share < 1:
            if isinstance(total, int) and total > 0:  # rounded up, as transformers does
                warm = -(-ceil(share * total) // self.updates)
                self.put("optimizer.warmup_steps", warm, *made_of, "max_steps")
            else:
                self.say(
                    f"`{name}` {share} is a share of steps whose number is not said: set optimizer.warmup_steps here"
                )
        else:
            self.put("optimizer.warmup_steps", 0, *made_of)
            self.steps("warmup_steps", "optimizer.warmup_steps")

    def algorithm(self) -> None:
        loss = str(self.of("loss_type", "dapo"))
        surrogate, advantage = surrogate_of(self.theirs), advantage_of(self.theirs)
        self.used |= {"scale_rewards", "multi_objective_aggregation"}
        if surrogate is None:
            self.say(f"`loss_type` {loss!r} has no counterpart: set algorithm.surrogate and algorithm.aggregation here")
        else:
            kind, aggregation = LOSSES[loss]
            self.used |= set(PARAMETERS[kind].values()) | ({"epsilon"} if kind == "cispo" else set())
            self.put("algorithm.surrogate", self.with_computed(_filled(surrogate)), "loss_type")
            self.put("algorithm.aggregation", aggregation, "loss_type")
        if loss == "bnpo":
            self.say("`loss_type` 'bnpo' counts the tokens of one device's rows; read as token_mean, which counts all")
        if advantage is None:
            self.say(
                f"`scale_rewards` {self.theirs['scale_rewards']!r} has no counterpart: set algorithm.advantage here"
            )
        else:
            self.put("algorithm.advantage", advantage, "scale_rewards", "multi_objective_aggregation")
        level = self.of("importance_sampling_level", "token")
        if level not in ("token", "sequence"):
            self.say(f"`importance_sampling_level` {level!r} has no counterpart: set algorithm.ratio here")
        if loss == "vespo":
            self.put("algorithm.ratio", "sequence_product")
        else:
            self.put(
                "algorithm.ratio", "sequence_mean" if level == "sequence" else "token", "importance_sampling_level"
            )
        self.put("algorithm.kl.estimator", "k3")
        self.put("algorithm.kl.placement", "loss")
        synced = self.of("sync_ref_model", False) is True
        self.put("algorithm.kl.reference", "synced" if synced else "initial", "sync_ref_model")
        if synced:
            self.steps("ref_model_sync_steps", "algorithm.kl.sync_every")
            if (mixed := self.of("ref_model_mixup_alpha", 0.6)) != 1:
                self.say(
                    f"`ref_model_mixup_alpha` is {mixed}: here a synced reference becomes a whole copy of the policy"
                )
        if number_at(self.config, "algorithm.kl.beta", 0) and self.of("use_bias_correction_kl", True) is not False:
            self.say("`use_bias_correction_kl` has no counterpart: the KL term here is not multiplied by the ratio")
        masks = self.of("mask_truncated_completions", False) is True
        self.put("algorithm.truncated_completions", "mask" if masks else "keep", "mask_truncated_completions")
        engines = ("use_vllm", "use_transformers_continuous_batching", "use_transformers_paged")
        vllm, *batched = (self.of(name, False) is True for name in engines)
        self.put("sampling.engine", "vllm" if vllm else "transformers" if any(batched) else "native", *engines)

    def with_computed(self, surrogate: dict[str, Json]) -> dict[str, Json]:
        """A loss; of its parameters those that are computed are the base's, if that has the same loss."""
        base, names = get(self.config, "algorithm.surrogate"), PARAMETERS.get(str(surrogate["kind"]), {})
        if not isinstance(base, dict) or base.get("kind") != surrogate["kind"]:
            return surrogate
        computed = set(self.computed)
        if "epsilon" in computed and self.of("epsilon_high") is None:
            computed.add("epsilon_high")  # which is epsilon by default
        return surrogate | {ours: base[ours] for ours, name in names.items() if name in computed and ours in base}

    def budget(self) -> None:
        if self.of("max_steps", -1) == -1 and "max_steps" not in self.computed:
            epochs = self.of("num_train_epochs", 3.0)
            self.say(f"TRL trains for `num_train_epochs` {epochs} and has no `max_steps`: set budget.steps here")
        else:
            self.steps("max_steps", "budget.steps")
        for strategy, name, path, default in (
            ("eval_strategy", "eval_steps", "budget.eval_every", "no"),
            ("save_strategy", "save_steps", "budget.checkpoint_every", "steps"),
        ):
            match self.of(strategy, default):
                case "steps":
                    if name == "save_steps":
                        self.put(path, 500, strategy, name)
                    elif not self.theirs.get(name) and name not in self.computed:  # then at each line of the log
                        self.put(path, 10, strategy, name)
                        name = "logging_steps"
                    self.steps(name, path)
                case "no":
                    self.put(path, 0, strategy)
                case other:
                    self.say(f"`{strategy}` {other!r} has no counterpart: set {path} here, in steps")
        at_evaluation = get(self.config, "budget.eval_every")
        if at_evaluation and (samples := self.of("num_generations_eval")) is not None:
            self.put("budget.eval_samples", samples)
        self.put("budget.keep.last", self.of("save_total_limit", 0), "save_total_limit")

    def model(self) -> None:
        if isinstance(name := self.of("model_name_or_path"), str):
            self.put("model.source", self.at_revision(name))
        else:
            self.at_revision("")
        if isinstance(self.theirs.get("bf16"), bool):
            self.put("model.dtype", "bfloat16" if self.of("bf16") else "float32", "bf16")
        if isinstance(name := self.of("dataset_name"), str):
            self.put("task", {"kind": "dataset", "source": f"hub:{name}", "subset": self.of("dataset_config"), "split": self.of("dataset_train_split", "train")})  # fmt: skip
            self.say(f"the data set is {name}: say in the form which of its columns hold the prompt and the answer")
        if isinstance(system := self.of("system_prompt"), str):  # of scripts around TRL, not TRL's own
            self.put("task.system_prompt", system, "system_prompt")
        base, lora = get(self.config, "model.lora"), None
        rank, alpha, modules = self.of("lora_r", 16), self.of("lora_alpha", 32), self.of("lora_target_modules")
        if self.of("use_peft", False) is True:
            lora = {"rank": rank, "alpha": alpha, "target_modules": modules or "all-linear"}
            if isinstance(base, dict):
                computed = ("rank", "lora_r"), ("alpha", "lora_alpha"), ("target_modules", "lora_target_modules")
                lora |= {ours: base[ours] for ours, name in computed if name in self.computed and ours in base}
            if dropout := self.of("lora_dropout", 0.05):
                self.say(f"`lora_dropout` {dropout!r:.100} has no counterpart: nothing is dropped out here")
        self.put("model.lora", lora, "use_peft")
        weights, functions = self.of("reward_weights"), reward_functions(self.config)
        if weights is None or "reward_weights" in self.computed:
            return
        if not isinstance(weights, list) or len(weights) != len(functions):
            size = len(weights) if isinstance(weights, list) else repr(weights)[:100]
            self.say(f"`reward_weights` are {size}, and the form has {len(functions)} rewards: set the weights there")
            return
        for place, weight in enumerate(weights):
            self.put(f"rewards.functions.{place}.weight", weight)

    def at_revision(self, name: str) -> str:
        """The model's source at the revision that is asked for. Raises Unreadable: another one would be another model."""
        loading = self.of("model_init_kwargs")
        others = dict(loading) if isinstance(loading, dict) else {}
        revision = others.pop("revision", None) or self.of("model_revision", "main")
        if others or not isinstance(loading, dict | None):
            self.say(f"`model_init_kwargs` {others or loading!r:.100} has no counterpart here")
        if revision == "main":
            return name
        source = f"{name}@{revision}"
        try:
            return TypeAdapter(ModelSource).validate_python(source if name else "")
        except ValidationError:
            text = (
                f"`model_revision` {revision!r:.100} cannot be taken: it has to be of a model of the Hub, and without /"
            )
            raise Unreadable(f"{text}; name that model, or take the revision out") from None

    def lacking(self) -> None:
        passed = []
        for name, value in self.theirs.items():
            is_off = _as_number(value) == _OFF[name] if name in _OFF else value in (False, "", [], {})
            if name in self.used or value is None or is_off:
                continue
            if name in _PASSED_OVER:
                passed.append(f"`{name}`")
            elif name != "optim":
                self.say(f"`{name}` {value!r:.100} has no counterpart here")
            elif value not in _ADAMW:
                self.say(f"`optim` {value!r:.100} has no counterpart: the optimizer here is AdamW")
        if passed:
            self.say(f"{_WHY_PASSED}{', '.join(passed)}")


def _as_number(value: Json) -> Json:
    """What YAML or JSON took for a text, as a number again, if it is one."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _filled(settings: dict[str, Json]) -> dict[str, Json]:
    """A surrogate with its defaults; as it is where it is out of bounds, which the form says."""
    known: TypeAdapter[BaseModel] = TypeAdapter(Surrogate)
    try:
        return known.validate_python(settings).model_dump(mode="json")
    except ValidationError:
        return settings


# ---- a script of ours, there and back

USED = ("recipe", "model.source", "model.dtype", "task", "rewards", "compute", "budget.eval_items")
"""Of a configuration what the script hands to our own package."""
_WHOLE = ("algorithm.advantage", "algorithm.surrogate", "sampling.curriculum", "model.lora")


def used_here(config: Settings) -> dict[str, Json]:
    """The parts of a configuration that TRL need not know: model, task and rewards."""
    parts: Json = {}
    for path in USED:
        parts = put(parts, path, get(dict(config), path))
    return cast("dict[str, Json]", parts)


def _base(used: Settings) -> dict[str, Json]:
    base: Json = GrpoConfig().model_dump(mode="json")
    for path, value in TRL_DEFAULTS.items():
        base = put(base, path, value)
    for path in USED:
        base = put(base, path, get(dict(used), path))
    return cast("dict[str, Json]", base)


def left_out(config: Settings) -> dict[str, tuple[Json, str]]:
    """By path, what TRL's settings do not say of a configuration, and why."""
    said, _ = from_settings(settings_for(config), _base(used_here(config)))
    places = {path: value for path, value in leaves(dict(config)) if get(said, path) != value}
    return {path: (value, _why(path)) for path, value in places.items()}


def leaves(value: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """The settings of a configuration by their paths; what is chosen as a whole is one."""
    if not isinstance(value, dict) or path in _WHOLE or path in USED:
        yield path, value
        return
    for name, each in value.items():
        yield from leaves(each, f"{path}.{name}" if path else name)


def _why(path: str) -> str:
    while path and path not in LACKS:
        path = path.rpartition(".")[0]
    return LACKS.get(path, "TRL has nothing like it")


def read_back(theirs: Settings, used: Settings, beside: Settings, computed: Collection[str] = ()) -> tuple[dict[str, Json], list[str]]:  # fmt: skip
    """The configuration of a script of ours: of its GRPOConfig, of what it hands to this package, and of what stands `beside`.

    What somebody changed in GRPOConfig is meant: what stands beside and says something else is left out, and named.
    """
    config, remarks = from_settings(theirs, _base(used), computed)
    remarks = [
        one for one in remarks if not one.startswith(_WHY_PASSED)
    ]  # the script that this program wrote sets some of them
    said = settings_for(config)
    for path, value in beside.items():
        tried = cast("dict[str, Json]", put(config, path, value))
        now = settings_for(tried)
        if all(now.get(name) == value for name, value in said.items() if name in now and name not in _OF_THE_MACHINE):
            config = tried
        else:
            remarks.append(f"{path} does not go with GRPOConfig as it is now, and is left out")
    return config, remarks
