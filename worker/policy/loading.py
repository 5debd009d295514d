"""Loading a policy: from a source or a checkpoint, with adapters where they are trained."""

from pathlib import Path
from typing import Literal, cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from backend.contract.model import Lora
from backend.contract.model import Model as ModelConfig
from worker.errors import RunFailure
from worker.failure import opening
from worker.policy.adapter import merged, name_base, with_adapter
from worker.policy.policy import Policy
from worker.policy.sources import Pretrained, require_safetensors
from worker.ranks.ranks import ALONE, Ranks


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

    With `reference`, the source's weights are kept to compare with. Without `fast`, transformers' plain forward does all. Raises RunFailure `model_unavailable`.
    """
    if config.lora is not None:
        model: PreTrainedModel | PeftModel = _with_adapters(source, config.lora, resume, seed)
        tokenizer = _tokenizer(source)
    else:
        start = source if resume is None else Pretrained(str(resume))
        model, tokenizer = _causal_lm(start), _tokenizer(start)
    if config.gradient_checkpointing:
        if isinstance(model, PeftModel):
            model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    policy = Policy(model, tokenizer, device, config.dtype, fast=fast, ranks=ranks)
    if reference and not policy.adapted:
        if resume is None:
            policy.copy_reference()
        else:
            policy.set_reference(dict(_causal_lm(source).named_parameters()))
    return policy


def _with_adapters(source: Pretrained, lora: Lora, resume: Path | None, seed: int) -> PeftModel:
    base = _causal_lm(source)
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


def _causal_lm(source: Pretrained) -> PreTrainedModel:
    if source.base is not None:
        folder = Path(source.location)
        return merged(with_adapter(_causal_lm(source.base), folder), folder)
    here = {"local_files_only": source.cached}
    model = _from_pretrained(
        AutoModelForCausalLM, source, adapter_kwargs=here, dtype=torch.float32, use_safetensors=True
    )
    return cast(PreTrainedModel, model)


def _tokenizer(source: Pretrained) -> PreTrainedTokenizerBase:
    return cast(PreTrainedTokenizerBase, _from_pretrained(AutoTokenizer, source))


def _from_pretrained(
    factory: type[AutoModelForCausalLM] | type[AutoTokenizer], source: Pretrained, **options: object
) -> object:
    """Raises RunFailure if the model is not there, is not a language model, or has weights in another format than safetensors."""

    def refusal(reason: str, details: str) -> RunFailure:
        advice = "Check the name; a Hub model needs a connection or a copy in this worker's cache."
        return RunFailure(
            "model_unavailable", f"The model {source.location} cannot be loaded: {reason} {advice}", details
        )

    with opening(refusal):
        require_safetensors(source)
        return factory.from_pretrained(
            source.location,
            revision=source.revision or "main",
            trust_remote_code=False,
            local_files_only=source.cached,
            **options,
        )
