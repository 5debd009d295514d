"""TRL's settings and this program's: which mean the same, and a configuration of ours in TRL's words.

Names and defaults are those of GRPOConfig in TRL 1.16. `trl_conversion` goes the other way, by the same tables.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pydantic import TypeAdapter, ValidationError

from backend.contract.advantage import Advantage
from backend.contract.base import Json
from backend.contract.grpo import MAX_COMPLETIONS_PER_STEP
from backend.contract.stored import get, number_at, reward_functions, text_at
from backend.contract.surrogate import Surrogate

Settings = Mapping[str, Json]
_EPS = 1e-4  # added to every standard deviation

SHARED: tuple[tuple[str, str, Json], ...] = (
    ("num_generations", "sampling.group_size", 8),
    ("max_completion_length", "sampling.max_new_tokens", 512),
    ("temperature", "sampling.temperature", 1.0),
    ("top_p", "sampling.top_p", 1.0),
    ("top_k", "sampling.top_k", 0),
    ("learning_rate", "optimizer.learning_rate", 1e-6),
    ("weight_decay", "optimizer.weight_decay", 0.0),
    ("max_grad_norm", "optimizer.max_grad_norm", 1.0),
    ("beta", "algorithm.kl.beta", 0.0),
    ("num_iterations", "algorithm.updates_per_batch", 1),
    ("entropy_coef", "algorithm.entropy_bonus", 0.0),
    ("seed", "budget.seed", 42),
    ("gradient_checkpointing", "model.gradient_checkpointing", True),
)
"""Of a setting that means the same in both: TRL's name, ours, and TRL's default."""

LOSSES = {
    "grpo": ("clip", "sequence_mean"),
    "dapo": ("clip", "token_mean"),
    "bnpo": ("clip", "token_mean"),
    "dr_grpo": ("clip", "constant"),
    "luspo": ("clip", "sequence_sum"),
    "cispo": ("cispo", "token_mean"),
    "sapo": ("sapo", "sequence_mean"),
    "vespo": ("vespo", "token_mean"),
}
"""A loss of TRL's as a surrogate and an aggregation."""
_NEAREST = {
    "sequence_mean": "grpo",
    "token_mean": "dapo",
    "constant": "dr_grpo",
    "sequence_sum": "luspo",
    "group_sum": "luspo",  # group_size times as large, as is the next one: AdamW hardly notices
    "group_token_mean": "grpo",
}  # what comes nearest to an aggregation of clip, and of what TRL has no loss for
PARAMETERS = {
    "clip": {"epsilon_low": "epsilon", "epsilon_high": "epsilon_high", "delta": "delta"},
    "cispo": {"cap": "epsilon_high"},
    "sapo": {"tau_positive": "sapo_temperature_pos", "tau_negative": "sapo_temperature_neg"},
    "vespo": {
        "k_positive": "vespo_k_pos",
        "lambda_positive": "vespo_lambda_pos",
        "k_negative": "vespo_k_neg",
        "lambda_negative": "vespo_lambda_neg",
    },
}
ADVANTAGES: dict[str, dict[str, Json]] = {
    "group": {"kind": "group_zscore", "std": "sample", "eps": _EPS, "std_floor": 0.0},
    "batch": {"kind": "batch_std", "eps": _EPS},
    "none": {"kind": "group_center"},
}
"""What `scale_rewards` makes of a reward."""
_SUM_LAST: dict[str, Json] = {"kind": "normalize_then_sum", "eps": _EPS}


def in_our_terms(theirs: Settings) -> dict[str, Json]:
    """What of a GRPOConfig has a place in RecordedConfig; None where there is no word for it here."""
    size, batch = theirs.get("num_generations"), theirs.get("generation_batch_size")
    prompts = batch // size if isinstance(batch, int) and isinstance(size, int) and size else None
    steps = theirs.get("max_steps")
    places = {ours: theirs.get(name) for name, ours, _ in SHARED}
    names = ("group_size", "max_new_tokens", "temperature", "top_p")
    return {
        "sampling": {"prompts_per_step": prompts, **{name: places[f"sampling.{name}"] for name in names}},
        "algorithm": {
            "advantage": _known(Advantage, advantage_of(theirs)),
            "surrogate": _known(Surrogate, surrogate_of(theirs)),
            "kl": {"beta": places["algorithm.kl.beta"] or 0.0},
            "updates_per_batch": places["algorithm.updates_per_batch"],
        },
        "budget": {"steps": steps if isinstance(steps, int) and steps > 0 else None},
    }


def _known(kind: Any, settings: dict[str, Json] | None) -> dict[str, Json] | None:
    """The settings, if they are within the bounds that they have here."""
    try:
        TypeAdapter(kind).validate_python(settings)
    except ValidationError:
        return None
    return settings


def advantage_of(theirs: Settings) -> dict[str, Json] | None:
    """The estimator; None if we have none like it."""
    if theirs.get("multi_objective_aggregation", "sum_then_normalize") != "sum_then_normalize":
        return _SUM_LAST
    scale = theirs.get("scale_rewards", "group")
    if isinstance(scale, bool):
        scale = "group" if scale else "none"
    return ADVANTAGES.get(str(scale))


def surrogate_of(theirs: Settings) -> dict[str, Json] | None:
    """The loss of a token, with the settings that it was given; None if we have none like it."""
    loss = LOSSES.get(str(theirs.get("loss_type", "dapo")))
    if loss is None:
        return None
    named = {ours: theirs[name] for ours, name in PARAMETERS[loss[0]].items() if name in theirs}
    if loss[0] in ("clip", "cispo"):
        low = theirs.get("epsilon", 0.2)
        high = theirs.get("epsilon_high")
        high = low if high is None else high
        clip = {"epsilon_low": low, "epsilon_high": high, "delta": theirs.get("delta")}
        named = {"cap": high} if loss[0] == "cispo" else clip
    return {"kind": loss[0], **named}


# ---- a configuration of ours in TRL's words


def settings_for(config: Settings) -> dict[str, Json]:
    """The arguments of GRPOConfig that come nearest to a configuration of ours; valid or not, as long as it has all its fields."""
    at, whole = partial(get, dict(config)), partial(number_at, config)
    updates, size = int(whole("algorithm.updates_per_batch", 1)), int(whole("sampling.group_size", 1))
    args: dict[str, Json] = {name: at(ours) for name, ours, _ in SHARED}
    args |= {"disable_dropout": True, "sync_ref_model": False, "max_steps": int(whole("budget.steps", 1)) * updates}
    warmup, kind = int(whole("optimizer.warmup_steps", 0)), text_at(config, "optimizer.schedule")
    kind = "constant_with_warmup" if kind == "constant" and warmup else kind
    args |= {"lr_scheduler_type": kind, "warmup_steps": warmup * updates}
    args |= _loss(config) | _batches(config, size)
    if args["beta"]:
        args["use_bias_correction_kl"] = False
    if at("algorithm.kl.reference") == "synced":
        args |= {"sync_ref_model": True, "ref_model_mixup_alpha": 1.0}
        args["ref_model_sync_steps"] = int(whole("algorithm.kl.sync_every", 50)) * updates
    if at("algorithm.truncated_completions") == "mask":
        args["mask_truncated_completions"] = True
    engines = {"vllm": "use_vllm", "transformers": "use_transformers_continuous_batching"}
    if (engine := text_at(config, "sampling.engine")) in engines:
        args[engines[engine]] = True
    every, saved = int(whole("budget.eval_every", 0)), int(whole("budget.checkpoint_every", 0))
    if every:
        samples = max(1, int(whole("budget.eval_samples", 1)))
        args |= {"eval_strategy": "steps", "eval_steps": every * updates, "eval_on_start": True}
        args |= {"num_generations_eval": samples, "per_device_eval_batch_size": samples * max(1, 128 // samples)}
    args |= {"save_strategy": "steps", "save_steps": saved * updates} if saved else {"save_strategy": "no"}
    if last := at("budget.keep.last"):
        args["save_total_limit"] = last
    args["reward_weights"] = [number_at(one, "weight", 1.0) for one in reward_functions(config)]
    if lora := at("model.lora"):
        names = {"lora_r": "rank", "lora_alpha": "alpha", "lora_target_modules": "target_modules"}
        args |= {"use_peft": True, **{theirs: get(lora, ours) for theirs, ours in names.items()}}
    return args


def _loss(config: Settings) -> dict[str, Json]:
    at = partial(text_at, config)
    kind = at("algorithm.surrogate.kind")
    loss = kind if kind in LOSSES else _NEAREST.get(at("algorithm.aggregation"), "grpo")
    args: dict[str, Json] = {"loss_type": loss}
    for ours, theirs in PARAMETERS.get(kind, {}).items():
        if (value := get(dict(config), f"algorithm.surrogate.{ours}")) is not None:
            args[theirs] = value
    args["importance_sampling_level"] = "sequence" if at("algorithm.ratio") == "sequence_mean" else "token"
    estimator = at("algorithm.advantage.kind")
    if estimator == _SUM_LAST["kind"]:
        return args | {"multi_objective_aggregation": estimator}
    scales = {str(one["kind"]): scale for scale, one in ADVANTAGES.items()}
    return args | {"scale_rewards": scales.get(estimator, "none")}


_PROMPT_TOKENS = 2  # times the longest completion is what a row may have, its prompt included


def _batches(config: Settings, size: int) -> dict[str, Json]:
    """Rows of one pass, and how many passes make a step: as many tokens as fit into our micro-batch."""
    whole = partial(number_at, config)
    rows, processes = int(whole("sampling.prompts_per_step", 1)) * size, max(1, int(whole("compute.processes", 1)))
    own = rows // processes if rows % processes == 0 else rows
    tokens = _PROMPT_TOKENS * int(whole("sampling.max_new_tokens", 1))
    most = min(own, int(whole("optimizer.micro_batch_tokens", 1)) // max(1, tokens), MAX_COMPLETIONS_PER_STEP)
    at_once = next((count for count in range(most, 1, -1) if own % count == 0), 1)
    return {"per_device_train_batch_size": at_once, "gradient_accumulation_steps": own // at_once}


def differences(config: Settings) -> Iterator[str]:
    """What the script does a little otherwise than the run, though both have a word for it."""
    if number_at(config, "optimizer.warmup_steps", 0):
        yield "Warm-up: TRL's update k, from 0, has k / warmup_steps of the learning rate, and a run here has (k + 1) / warmup_steps."
    if number_at(config, "algorithm.entropy_bonus", 0) and text_at(config, "algorithm.aggregation") != "token_mean":
        yield "Entropy bonus: TRL's is a mean over tokens, whatever the loss is a mean of."
    if get(dict(config), "task.shares"):
        yield "Shares of sources: TRL draws the rows as they are."
    if get(dict(config), "rewards.gates"):
        yield "Gates: a reward whose gate is closed is shown as 0, since TRL adds up what it is given."
    if (processes := int(number_at(config, "compute.processes", 1))) > 1:
        yield f"Processes: start it with accelerate launch --num_processes {processes}."
