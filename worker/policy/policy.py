"""The policy that is trained, with its tokenizer and its reference."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, cast

import torch
from peft import LoraConfig, LoraModel, PeftModel, get_peft_model
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_layers import GradientCheckpointingLayer

from backend.contract.model import Lora
from backend.contract.model import Model as ModelConfig
from worker.errors import RunFailure
from worker.policy.decoder import Decoder
from worker.policy.device import autocast, compute_dtype
from worker.policy.linear import prefers_onednn
from worker.policy.logprobs import TokenBatch, TokenValues, TrainingPass
from worker.policy.sources import Pretrained
from worker.policy.value_head import ValueHead

# What a training pass on a CPU keeps for the gradient, at most.
_ACTIVATION_BYTES = 3 * 2**29


class Promptable(Protocol):
    """Something that is asked: chat messages, or a raw question."""

    @property
    def question(self) -> str:
        """The question as the task words it."""

    @property
    def messages(self) -> tuple[dict[str, str], ...] | None:
        """Chat messages; None for a raw prompt."""


class Policy:
    """A causal language model that can be sampled, trained, and compared with the weights it began with.

    Weights are float32. The model stays in evaluation mode throughout: dropout would make the first ratio differ from 1.
    """

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        tokenizer: PreTrainedTokenizerBase,
        device: torch.device,
        dtype: str,
        *,
        fast: bool = True,
    ):
        cast(torch.nn.Module, model).to(device).eval()
        self.model = model
        self.tokenizer = tokenizer
        self.device = device
        self._dtype = dtype
        self.remarks: list[str] = []
        """What the run should tell about how it computes, until somebody has told it."""
        self._pass = TrainingPass(model, recompute=recomputes(model), fast=fast, remark=self.remark)
        self.value_head: ValueHead | None = None
        self.reference_weights: dict[str, Tensor] | None = None
        self.updates = 0
        """How often the weights changed since they were loaded: whoever keeps a copy of them looks here."""

    @property
    def adapted(self) -> bool:
        """Whether adapters are trained instead of all the weights."""
        return isinstance(self.model, PeftModel)

    @property
    def config(self) -> PreTrainedConfig:
        """The model's configuration."""
        return cast(PreTrainedConfig, self.model.config)

    @property
    def stop_ids(self) -> set[int]:
        """The tokens that end a completion."""
        generation = getattr(self.model, "generation_config", None)
        ids = getattr(generation, "eos_token_id", None)
        found = set(ids) if isinstance(ids, list) else {ids}
        return {i for i in found | {self.tokenizer.eos_token_id} if i is not None}

    @property
    def context(self) -> int | None:
        """The longest sequence in tokens that the model was made for; None where its configuration does not say."""
        limit = getattr(self.config, "max_position_embeddings", None)
        return int(limit) if isinstance(limit, int) else None

    def parameters(self) -> list[torch.nn.Parameter]:
        """The parameters of the language model that are trained; those of the value head are its own."""
        return [parameter for _, parameter in self._trained()]

    def named_parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        """All that is trained, the value head included, by name: what a checkpoint's optimizer state belongs to."""
        head = [] if self.value_head is None else list(self.value_head.named_parameters(prefix="value_head"))
        return self._trained() + head

    def _trained(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [(name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad]

    def add_value_head(self) -> None:
        """Give each token's state a value (PPO's critic), which begins at 0."""
        self.value_head = ValueHead(int(self.config.get_text_config().hidden_size)).to(self.device)

    def copy_reference(self) -> None:
        """Take the weights as they are now for the reference, in place of the one before."""
        self.reference_weights = {name: parameter.detach().clone() for name, parameter in self._trained()}

    def set_reference(self, weights: Mapping[str, Tensor]) -> None:
        """Take these weights, by parameter name, for the reference; others of theirs are left out."""
        self.reference_weights = {name: weights[name].detach().to(self.device) for name, _ in self._trained()}

    def encode(self, item: Promptable) -> tuple[str, list[int]]:
        """The prompt as the model reads it: its text and its token ids."""
        if item.messages is None:
            return item.question, list(self.tokenizer(item.question)["input_ids"])
        if self.tokenizer.chat_template is None:
            text = "\n\n".join(message["content"] for message in item.messages)
            return text, list(self.tokenizer(text)["input_ids"])
        text = str(self.tokenizer.apply_chat_template(list(item.messages), tokenize=False, add_generation_prompt=True))
        return text, list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: list[int]) -> str:
        """The text of a completion, without the tokens that only end it."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    @property
    def decoder(self) -> Decoder | None:
        """The layers as our own loop runs them; None where it does not, or must not."""
        return self._pass.decoder

    @property
    def compute_dtype(self) -> torch.dtype:
        """The precision of matrix products."""
        return compute_dtype(self.device, self._dtype)

    @property
    def tokens_at_once(self) -> int | None:
        """How many tokens a training pass should hold; None where the device's user knows best.

        On a CPU more than fill the cores are no faster, so that they hold a share of its memory and no more.
        """
        if self.device.type != "cpu":
            return None
        config = self.config.get_text_config()
        hidden = int(config.hidden_size)
        wide = int(getattr(config, "intermediate_size", None) or 4 * hidden)
        # What a layer keeps of a token: stream, normalised inputs, queries, keys, values, what they read; the gate and its input.
        kept = 4 * (9 * hidden + 2 * wide) * int(config.num_hidden_layers)
        return max(1, _ACTIVATION_BYTES // kept)

    @property
    def computed_by(self) -> str:
        """The paths that decide how numbers are rounded, in words."""
        product = "oneDNN" if self.device.type == "cpu" and prefers_onednn() else "torch"
        precision = str(self.compute_dtype).removeprefix("torch.")
        return f"{self._pass.path} passes, {product} products in {precision} on {self.device.type}"

    def remark(self, text: str) -> None:
        """Add to the remarks."""
        self.remarks.append(text)

    @torch.no_grad()
    def apart_from_plain(self, batch: TokenBatch, logprob_R_T: Tensor) -> tuple[float, float]:
        """How far these log-probs are from a plain forward's, at temperature 1, and what is still rounding."""
        with autocast(self.device, self._dtype):
            return self._pass.apart_from_plain(batch, logprob_R_T.to(self.device)[batch.mask_R_T])

    @property
    def packs(self) -> bool:
        """Whether a training pass computes real tokens only, and each prompt once."""
        return self._pass.path == "packed"

    def logprobs(self, batch: TokenBatch, *, temperature: float) -> TokenValues:
        """Of the policy; with gradient where it is enabled."""
        with autocast(self.device, self._dtype):
            return self._pass(batch, temperature=temperature, value_head=self.value_head)

    @torch.no_grad()
    def reference_logprobs(self, batch: TokenBatch, *, temperature: float) -> TokenValues:
        """Of the reference: the weights that were set or copied; else, with adapters, the model without them."""
        with autocast(self.device, self._dtype), self._as_reference():
            return self._pass(batch, temperature=temperature)

    @contextmanager
    def _as_reference(self) -> Iterator[None]:
        """The model with the reference's weights. They trade places by pointer: nothing is copied."""
        if self.reference_weights is None:
            if not isinstance(self.model, PeftModel):
                raise LookupError("this policy was loaded without a reference")
            with self.model.disable_adapter():
                yield
            return
        own = {name: parameter.data for name, parameter in self._trained()}
        self._point_to(self.reference_weights)
        try:
            yield
        finally:
            self._point_to(own)

    def _point_to(self, weights: Mapping[str, Tensor]) -> None:
        for name, parameter in self._trained():
            parameter.data = weights[name]

    @contextmanager
    def sampling(self) -> Iterator[torch.nn.Module]:
        """The model as a sampler uses it."""
        with torch.no_grad(), autocast(self.device, self._dtype):
            yield self.model

    def save(self, folder: Path) -> None:
        """Write what `from_pretrained` opens: the model, or the adapter, and the tokenizer. Safetensors and JSON only."""
        self.model.save_pretrained(str(folder))
        self.tokenizer.save_pretrained(folder)


def load_policy(
    config: ModelConfig,
    source: Pretrained,
    device: torch.device,
    *,
    resume: Path | None = None,
    reference: bool = False,
    seed: int = 0,
    fast: bool = True,
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
        _checkpoint_gradients(model)
    policy = Policy(model, tokenizer, device, config.dtype, fast=fast)
    if reference and not policy.adapted:
        if resume is None:
            policy.copy_reference()
        else:
            policy.set_reference(dict(_causal_lm(source).named_parameters()))
    return policy


def _with_adapters(source: Pretrained, lora: Lora, resume: Path | None, seed: int) -> PeftModel:
    base = _causal_lm(source)
    if resume is not None:
        return PeftModel.from_pretrained(base, str(resume), is_trainable=True)
    torch.manual_seed(seed)  # adapters begin at random; PEFT draws from the global generator only
    settings = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=lora.target_modules,
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
        revision=source.revision,  # of the base: whoever opens the adapter needs the same weights under it
    )
    try:
        return get_peft_model(base, settings)
    except ValueError as error:
        raise RunFailure(
            "lora_target_modules", f"The adapters do not fit this model: {error}. Use all-linear, or its module names."
        ) from error


def _checkpoint_gradients(model: PreTrainedModel | PeftModel) -> None:
    if isinstance(model, PeftModel):
        model.enable_input_require_grads()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def recomputes(model: torch.nn.Module) -> bool:
    """Whether the model was set up to recompute its activations in the backward pass."""
    return any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


@contextmanager
def recomputing(model: torch.nn.Module) -> Iterator[None]:
    """Let the layers recompute their activations, where the model was set up so; the rest stays in evaluation mode.

    transformers recomputes only in training mode, and training mode of the whole model would turn dropout on.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False


def _causal_lm(source: Pretrained) -> PreTrainedModel:
    folder = Path(source.location)
    if (folder / "adapter_config.json").is_file():  # a checkpoint with adapters: they become part of the weights
        settings = json.loads((folder / "adapter_config.json").read_text())
        base = Pretrained(settings["base_model_name_or_path"], settings.get("revision"))
        adapted = PeftModel.from_pretrained(_causal_lm(base), str(folder))
        merged = cast(PreTrainedModel, cast(LoraModel, adapted.base_model).merge_and_unload())
        merged.name_or_path = source.location
        return merged
    return cast(
        PreTrainedModel, _from_pretrained(AutoModelForCausalLM, source, dtype=torch.float32, use_safetensors=True)
    )


def _tokenizer(source: Pretrained) -> PreTrainedTokenizerBase:
    return cast(PreTrainedTokenizerBase, _from_pretrained(AutoTokenizer, source))


def _from_pretrained(
    factory: type[AutoModelForCausalLM] | type[AutoTokenizer], source: Pretrained, **options: object
) -> object:
    """Raises RunFailure where the model is not there, is not a language model, or holds pickled weights only."""
    try:
        return factory.from_pretrained(
            source.location, revision=source.revision or "main", trust_remote_code=False, **options
        )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise RunFailure(
            "model_unavailable",
            f"The model {source.location} cannot be loaded: {reason} "
            "Check the name; a Hub model needs a connection or a copy in this worker's cache.",
            details=str(error),
        ) from error
