"""Loading a policy: from a source or a checkpoint, with adapters where they are trained."""

from collections.abc import Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from backend.contract.model import Lora
from backend.contract.model import Model as ModelConfig
from worker.errors import RunFailure
from worker.failure import opening
from worker.policy.adapter import merged, name_base, with_adapter
from worker.policy.policy import Policy
from worker.policy.sources import Pretrained, require_safetensors
from worker.policy.trainable import why_no_numbers, why_untrainable
from worker.ranks.ranks import ALONE, Ranks

_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")


def load_policy(
    config: ModelConfig,
    source: Pretrained,
    device: torch.device,
    *,
    resume: Path | None = None,
    reference: bool = False,
    seed: int = 0,
    fast: bool = True,
    ranks: Ranks = ALONE,
) -> Policy:
    """Load the policy that `config` describes, from its source or (`resume`) from a checkpoint's model directory.

    With `reference`, the source's weights are kept to compare with. Without `fast`, transformers' plain forward does all.
    Raises RunFailure `model_unavailable`, also if a weight is missing: transformers would draw it at random.
    """
    remarks: list[str] = []
    if config.lora is not None:
        model: PreTrainedModel | PeftModel = _with_adapters(source, config.lora, resume, seed, remarks)
        tokenizer = _tokenizer(source)
    else:
        start = source if resume is None else Pretrained(str(resume))
        model, tokenizer = _causal_lm(start, remarks), _tokenizer(start)
    if config.gradient_checkpointing and not getattr(model, "supports_gradient_checkpointing", False):
        remarks.append("this model cannot recompute its activations: they are kept, which takes more memory")
    elif config.gradient_checkpointing:
        if isinstance(model, PeftModel):
            model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    policy = Policy(model, tokenizer, device, config.dtype, fast=fast, ranks=ranks)
    policy.remarks += remarks
    if not policy.parameters():
        raise RunFailure("nothing_to_train", f"The model {source.location} has no parameter that is trained.")
    if reference and not policy.adapted:
        if resume is None:
            policy.copy_reference()
        else:
            policy.set_reference(dict(_causal_lm(source, []).named_parameters()))
    return policy


def _with_adapters(source: Pretrained, lora: Lora, resume: Path | None, seed: int, remarks: list[str]) -> PeftModel:
    base = _causal_lm(source, remarks)
    name_base(base, source.name or source.location)
    if resume is not None:
        return with_adapter(base, resume, trainable=True)
    torch.manual_seed(seed)  # adapters begin at random; PEFT draws from the global generator only
    return with_new_adapters(base, lora, "CAUSAL_LM", source.revision)


def with_new_adapters(
    base: PreTrainedModel, lora: Lora, task: Literal["CAUSAL_LM", "SEQ_CLS"], revision: str | None
) -> PeftModel:
    """The base with adapters that change nothing yet; of a classifier, the head is trained with them. Raises RunFailure."""
    settings = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=lora.target_modules,
        lora_dropout=0.0,
        task_type=task,
        revision=revision,  # of the base: the adapter needs the same weights under it when it is opened
    )
    try:
        return get_peft_model(base, settings)
    except ValueError as error:
        raise RunFailure(
            "lora_target_modules", f"The adapters do not fit this model: {error}. Use all-linear, or its module names."
        ) from error


def load_reader(source: Pretrained) -> tuple[PreTrainedTokenizerBase, PreTrainedConfig, list[int | None]]:
    """What reads prompts before any weight is loaded: the tokenizer, the weights' configuration, and the tokens that end a completion.

    Raises as `load_policy`.
    """
    weights = source
    while weights.base is not None:
        weights = weights.base
    config, ends = _configuration(weights), None
    with suppress(OSError, ValueError):  # most have one
        made = GenerationConfig.from_pretrained(
            weights.location, revision=weights.revision or "main", local_files_only=weights.cached
        )
        ends = made.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    if not all(isinstance(one, int | None) for one in ends):
        raise _unavailable(source, f"its generation_config.json has {ends!r:.100} where tokens have numbers.")
    return _tokenizer(source), config, ends


def _configuration(source: Pretrained) -> PreTrainedConfig:
    """Raises RunFailure if a model of this configuration cannot be trained."""
    config = cast(PreTrainedConfig, _from_pretrained(AutoConfig, source))
    with opening(partial(_unavailable, source)):
        why = why_untrainable(config)
        if why is None and Path(source.location).is_dir():
            why = why_no_numbers(Path(source.location))
    if why:
        raise _unavailable(source, f"{why}.")
    return config


def _causal_lm(source: Pretrained, remarks: list[str]) -> PreTrainedModel:
    """The model with all its weights; `remarks` gets what the log should say of them. Raises RunFailure."""
    if source.base is not None:
        folder = Path(source.location)
        return merged(with_adapter(_causal_lm(source.base, remarks), folder), folder)
    _configuration(source)
    model, found = cast(
        tuple[PreTrainedModel, dict[str, Any]],
        _from_pretrained(
            AutoModelForCausalLM,
            source,
            adapter_kwargs={"local_files_only": source.cached},
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
        ),
    )
    if sizes := [f"{name} is {list(has)} and should be {list(asks)}" for name, has, asks in found["mismatched_keys"]]:
        raise _unavailable(source, f"its weights have other shapes than its config.json asks for: {_some(sizes)}.")
    unused = _some(found["unexpected_keys"])
    if missing := _some(found["missing_keys"]):
        others = f" They hold others that it does not know: {unused}." if unused else ""
        text = f"its files lack weights that its config.json asks for, and they would be drawn at random: {missing}.{others}"
        raise _unavailable(source, f"{text} Save it again, or mend its config.json.")
    if unused:
        remarks.append(f"the files of {source.location} hold weights that this model does not use: {unused}")
    return model


def _some(names: Collection[str]) -> str:
    """The first of them, and how many there are; "" for none."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(sorted(names)[:3]) + more


def _tokenizer(source: Pretrained) -> PreTrainedTokenizerBase:
    """Of an adapter its own, or that of its base: PEFT saves none."""
    if source.base is not None and not any((Path(source.location) / name).exists() for name in _TOKENIZERS):
        return _tokenizer(source.base)
    return cast(PreTrainedTokenizerBase, _from_pretrained(AutoTokenizer, source))


def _unavailable(source: Pretrained, reason: str, details: str | None = None) -> RunFailure:
    return RunFailure("model_unavailable", f"The model {source.location} cannot be loaded: {reason}", details)


def _from_pretrained(
    factory: type[AutoConfig] | type[AutoModelForCausalLM] | type[AutoTokenizer], source: Pretrained, **options: object
) -> object:
    """Raises RunFailure if the model is not there, is not a language model, or has weights in another format than safetensors."""
    advice = "Check the name; a Hub model needs a connection or a copy in this worker's cache."
    with opening(lambda reason, details: _unavailable(source, f"{reason} {advice}", details)):
        require_safetensors(source)
        return factory.from_pretrained(
            source.location,
            revision=source.revision or "main",
            trust_remote_code=False,
            local_files_only=source.cached,
            **options,
        )
