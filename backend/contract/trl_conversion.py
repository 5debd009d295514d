"""TRL's settings converted into a configuration of ours, and what each side has nothing like.

A script that this program wrote has both halves: TRL's settings, and beside them what they cannot say.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from backend.contract.base import Json
from backend.contract.grpo import GrpoConfig
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

_QUIET_PREFIXES = (
    "output_dir", "run_name", "project", "log", "report_to", "disable_tqdm", "save", "push_to_hub", "hub_", "trackio", "dataloader", "ddp", "fsdp",
    "deepspeed", "accelerator_config", "parallelism_config", "torch", "jit", "use_cpu", "use_mps", "local_rank", "no_cuda", "tf32", "full_determinism",
    "data_seed", "debug", "ignore_data_skip", "skip_memory_metrics", "resume", "restore", "overwrite", "do_", "past_index", "label", "per_device", "eval",
    "include", "num_completions_to_print", "push", "optim", "disable_dropout", "remove_unused", "shuffle_dataset", "pad_to_multiple", "ds3", "vllm",
    "transformers_continuous", "sapo", "vespo", "group_by", "length_column", "liger", "auto_find", "enable_jit", "average_tokens", "batch_eval", "prediction",
    "activation_checkpointing", "metric_for", "greater", "load_best", "lr_scheduler_kwargs", "num_train_epochs", "train_sampling", "warmup", "gradient_", "steps_per", "generation_batch",
    "bf16", "fp16", "half_precision", "trust_remote", "attn_implementation", "model_revision", "ref_model", "logit", "cache_impl", "router_aux", "hp_",
)  # fmt: skip
"""How TRL runs, stores and logs, and what is read together with another setting."""
_OFF: dict[str, Json] = {
    "repetition_penalty": 1.0, "top_entropy_quantile": 1.0, "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8, "entropy_coef_max": 1.0,
    "entropy_coef_delta": 0.005, "entropy_target": 0.2, "multi_objective_aggregation": "sum_then_normalize", "neftune_noise_alpha": None,
}  # fmt: skip
"""What TRL has by default and needs no counterpart."""
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
        if {*names, "generation_batch_size", "num_generations"} & set(self.computed):
            return
        if not isinstance(rows, int) or size < 1 or rows % size:
            self.say(f"{rows} rows do not divide into groups of {size:g}: set sampling.prompts_per_step here")
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
        share = warmup if isinstance(warmup, float) and 0 < warmup < 1 else share
        total = self.of("max_steps", -1)
        if isinstance(share, float) and 0 < share < 1 and isinstance(total, int):
            warm = max(0, round(share * total / self.updates))
            self.put("optimizer.warmup_steps", warm, "warmup_steps", "warmup_ratio", "max_steps")
        else:
            self.put("optimizer.warmup_steps", 0, "warmup_steps", "warmup_ratio")
            self.steps("warmup_steps", "optimizer.warmup_steps")

    def algorithm(self) -> None:
        loss = str(self.of("loss_type", "dapo"))
        surrogate, advantage = surrogate_of(self.theirs), advantage_of(self.theirs)
        self.used |= {name for names in PARAMETERS.values() for name in names.values()}
        self.used |= {"scale_rewards", "multi_objective_aggregation"}
        if surrogate is None:
            self.say(f"`loss_type` {loss!r} has no counterpart: set algorithm.surrogate and algorithm.aggregation here")
        else:
            self.put("algorithm.surrogate", self.with_computed(_filled(surrogate)), "loss_type")
            self.put("algorithm.aggregation", LOSSES[loss][1], "loss_type")
        if loss == "bnpo":
            self.say("`loss_type` 'bnpo' counts the tokens of one device's rows; read as token_mean, which counts all")
        if advantage is None:
            self.say(
                f"`scale_rewards` {self.theirs['scale_rewards']!r} has no counterpart: set algorithm.advantage here"
            )
        else:
            self.put("algorithm.advantage", advantage, "scale_rewards", "multi_objective_aggregation")
        level = self.of("importance_sampling_level", "token")
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
        mixed = self.of("ref_model_mixup_alpha", 0.6)
        if synced:
            self.steps("ref_model_sync_steps", "algorithm.kl.sync_every")
            if mixed != 1:
                self.say(
                    f"`ref_model_mixup_alpha` is {mixed}: here a synced reference becomes a whole copy of the policy"
                )
        beta = number_at(self.config, "algorithm.kl.beta", 0)
        if self.of("use_bias_correction_kl", True) is not False and beta:
            self.say("`use_bias_correction_kl` has no counterpart: the KL term here is not multiplied by the ratio")
        masks = self.of("mask_truncated_completions", False) is True
        self.put("algorithm.truncated_completions", "mask" if masks else "keep", "mask_truncated_completions")
        engines = ("use_vllm", "use_transformers_continuous_batching")
        vllm, batched = (self.of(name, False) is True for name in engines)
        self.put("sampling.engine", "vllm" if vllm else "transformers" if batched else "native", *engines)

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
            epochs = self.of("num_train_epochs", 3)
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
                    self.steps(name, path)
                case "no":
                    self.put(path, 0, strategy)
                case other:
                    self.say(f"`{strategy}` {other!r} has no counterpart: set {path} here, in steps")
        samples = self.of("num_generations_eval")
        if samples is not None and get(self.config, "budget.eval_every"):
            self.put("budget.eval_samples", samples)
        self.put("budget.keep.last", self.of("save_total_limit", 0), "save_total_limit")

    def model(self) -> None:
        if isinstance(name := self.of("model_name_or_path"), str):
            self.put("model.source", name)
        if isinstance(name := self.of("dataset_name"), str):
            self.put("task", {"kind": "dataset", "source": f"hub:{name}", "subset": self.of("dataset_config"), "split": self.of("dataset_train_split", "train")})  # fmt: skip
            self.say(f"the data set is {name}: say in the form which of its columns hold the prompt and the answer")
        base, lora = get(self.config, "model.lora"), None
        rank, alpha, modules = self.of("lora_r", 16), self.of("lora_alpha", 32), self.of("lora_target_modules")
        if self.of("use_peft", False) is True:
            lora = {"rank": rank, "alpha": alpha, "target_modules": modules or "all-linear"}
            if isinstance(base, dict):
                computed = ("rank", "lora_r"), ("alpha", "lora_alpha"), ("target_modules", "lora_target_modules")
                lora |= {ours: base[ours] for ours, name in computed if name in self.computed and ours in base}
        self.put("model.lora", lora, "use_peft")
        weights, functions = self.of("reward_weights"), reward_functions(self.config)
        if not isinstance(weights, list) or "reward_weights" in self.computed:
            return
        if len(weights) != len(functions):
            self.say(
                f"`reward_weights` are {len(weights)}, and the form has {len(functions)} rewards: set the weights there"
            )
            return
        for place, weight in enumerate(weights):
            self.put(f"rewards.functions.{place}.weight", weight)

    def lacking(self) -> None:
        for name, value in self.theirs.items():
            if name in self.used or name.startswith(_QUIET_PREFIXES) or _OFF.get(name) == _as_number(value):
                continue
            if value is not None and value is not False and value not in ("", [], {}, 0):
                self.say(f"`{name}` {value!r:.100} has no counterpart here")
        if not str(self.theirs.get("optim", "adamw")).startswith("adamw"):
            self.say(f"`optim` {self.theirs['optim']!r} has no counterpart: the optimizer here is AdamW")


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
    said = settings_for(config)
    for path, value in beside.items():
        tried = cast("dict[str, Json]", put(config, path, value))
        now = settings_for(tried)
        if all(now.get(name) == value for name, value in said.items() if name in now and name not in _OF_THE_MACHINE):
            config = tried
        else:
            remarks.append(f"{path} does not go with GRPOConfig as it is now, and is left out")
    return config, remarks
