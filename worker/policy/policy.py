"""The policy that is trained, with its tokenizer and its reference."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch
from peft import PeftModel
from peft.tuners.lora import Linear
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from worker.policy.adapter import save_model
from worker.policy.chat import Chat, Promptable, context_of, embedded
from worker.policy.decoder import Decoder
from worker.policy.device import autocast, compute_dtype
from worker.policy.linear import prefers_onednn
from worker.policy.logprobs import TokenBatch, TokenValues, TrainingPass, ValueHead
from worker.policy.recomputing import recomputes, without_dropout
from worker.ranks.ranks import ALONE, Ranks
from worker.ranks.sharding import as_held, exchange, gathered, layers_of, local, shard

# What a training pass on a CPU keeps for the gradient, at most.
_ACTIVATION_BYTES = 3 * 2**29


class Policy:
    """A causal language model that can be sampled, trained, and compared with the weights it began with.

    Weights are float32. Where several processes train, each holds its part of them. Dropout is off, in training too.
    """

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        tokenizer: PreTrainedTokenizerBase,
        device: torch.device,
        dtype: str,
        *,
        fast: bool = True,
        ranks: Ranks = ALONE,
    ):
        if ranks.in_shards:  # first: no device need hold all of it
            shard(model, ranks, device)
        cast(torch.nn.Module, model).to(device).eval()
        without_dropout(model)
        if device.type == "cpu" and not ranks.in_shards:
            # Out of the file that is mapped: it would stay in memory beside weights that are laid out anew, or trained.
            for parameter in filter(lambda one: one.requires_grad, model.parameters()):
                parameter.data = parameter.data.clone()
        self.model, self.device, self._dtype = model, device, dtype
        ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        self.chat = Chat(tokenizer, ends if isinstance(ends, list) else [ends], rows=embedded(self.config))
        self.ranks = ranks
        self.remarks: list[str] = []
        """What the run's log should say about how it computes; empty after it was logged."""
        self._pass = TrainingPass(
            model, recompute=recomputes(model), fast=fast, remark=self.remarks.append, ranks=ranks
        )
        self.value_head: ValueHead | None = None
        self.reference_weights: dict[str, Tensor] | None = None
        self.bytes_to_come: Callable[[], int] = lambda: 0
        """What training will still take of the device's memory, where anything trains: the sampler leaves it free."""
        self.updates = 0
        """How often the weights changed since they were loaded. A copy of them is compared by this number."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer."""
        return self.chat.tokenizer

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
        return self.chat.stop_ids

    @property
    def context(self) -> int | None:
        """The longest sequence in tokens that the model was made for; None if its configuration does not say."""
        return context_of(self.config)

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
        self._adjoin_reference()

    def set_reference(self, weights: Mapping[str, Tensor]) -> None:
        """Take these weights, by parameter name, for the reference; others of theirs are left out."""
        self.reference_weights = {name: as_held(held, weights[name]) for name, held in self._trained()}
        self._adjoin_reference()

    def _adjoin_reference(self) -> None:
        if self.decoder is not None:
            with self._as_reference():  # which has what the layers were laid out as
                for layer in self.decoder.layers:
                    layer.adjoin()

    def encode(self, item: Promptable) -> tuple[str, list[int]]:
        """The prompt as the model reads it: its text and its token ids."""
        return self.chat.encode(item)

    def encode_answered(self, item: Promptable, answer: str) -> list[int]:
        """The prompt with somebody's answer behind it, to the token that ends the turn."""
        return self.chat.encode_answered(item, answer)

    def decode(self, ids: list[int]) -> str:
        """The text of a completion, without the tokens that only end it."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    @property
    def decoder(self) -> Decoder | None:
        """The layers as our own loop runs them; None if it does not, or must not."""
        return self._pass.decoder

    @property
    def compute_dtype(self) -> torch.dtype:
        """The precision of matrix products: the weights' own, or half of it."""
        asked = compute_dtype(self.device, self._dtype)
        return asked if asked.itemsize == 2 else next(iter(cast(torch.nn.Module, self.model).parameters())).dtype

    @property
    def tokens_at_once(self) -> int | None:
        """How many tokens a training pass should hold; None if the device's user knows best.

        On a CPU more than fill the cores would not be faster, so they hold a share of its memory and no more.
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
        path = "packed passes over joined weights" if self._pass.path == "packed" else f"{self._pass.path} passes"
        return f"{path}, {product} products in {precision} on {self.device.type}"

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
        with autocast(self.device, self._dtype):  # left again, since it keeps its copies of weights
            self._pass.check(batch)  # with the policy's own weights and adapters, which is what will be trained
        with autocast(self.device, self._dtype), self._as_reference():
            return self._pass(batch, temperature=temperature)

    @contextmanager
    def _as_reference(self) -> Iterator[None]:
        """The model with the reference's weights, which trade places with its own."""
        if self.reference_weights is None:
            if not isinstance(self.model, PeftModel):
                raise LookupError("this policy was loaded without a reference")
            with self.model.disable_adapter():
                yield
            return
        self._trade_places(self.reference_weights)
        try:
            yield
        finally:
            self._trade_places(self.reference_weights)

    def _trade_places(self, weights: dict[str, Tensor]) -> None:
        for name, parameter in self._trained():
            weights[name] = exchange(parameter, weights[name])

    def idle(self, *, reference: bool = False) -> None:
        """A pass that computes nothing of use, where other processes compute and gather the same weights from this one, too."""
        compute = self.reference_logprobs if reference else self.logprobs
        loss = compute(TokenBatch.of([[0]], [[0]], self.device), temperature=1.0).logprob_R_T.sum() * 0
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]

    @contextmanager
    def sampling(self) -> Iterator[torch.nn.Module]:
        """The model as a sampler uses it."""
        with torch.no_grad(), autocast(self.device, self._dtype):
            yield self.model

    def save(self, folder: Path) -> None:
        """Write what `from_pretrained` opens: the model, or the adapter, and the tokenizer. Safetensors and JSON only."""
        save_model(self.model, folder, self.ranks)
        if self.ranks.first:
            self.tokenizer.save_pretrained(folder)


def bytes_to_come(optimizer: torch.optim.AdamW) -> int:
    """Of gradients and moments that do not exist yet."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return sum(local(one).nbytes * ((one.grad is None) + 2 * (one not in optimizer.state)) for one in parameters)


_INSIDE_ADAPTED = ".base_layer."


@torch.no_grad()
def plain_weights(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """The weights by the names that the model has without adapters: tied ones under each of their names.

    A copy may hold tied weights apart, as vLLM does on a CPU, and then needs them twice. What adapters add is in them; the
    policy's own tensors stay as they are. Of adapted weights those that lie in shards are left out.
    """
    if not isinstance(policy.model, PeftModel):
        yield from policy.model.named_parameters(remove_duplicate=False)
        return
    model = policy.model.get_base_model()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        weight: Tensor = parameter
        if ".lora_" in name or isinstance(parameter, DTensor):
            continue
        if name.endswith(f"{_INSIDE_ADAPTED}weight"):
            layer = cast(Linear, model.get_submodule(name.removesuffix(f"{_INSIDE_ADAPTED}weight")))
            weight = weight + layer.get_delta_weight(layer.active_adapters[0])
        yield name.replace(_INSIDE_ADAPTED, "."), weight


@torch.no_grad()
def hand_over(policy: Policy, take: Callable[[str, Tensor], None]) -> None:
    """Give `take` each of the plain weights, whole. Where they lie in shards all processes call this together, and what a layer has is
    there only until the next one is gathered."""
    taken: set[str] = set()

    def hand() -> None:
        for name, weight in plain_weights(policy):
            if name not in taken and not isinstance(weight, DTensor):
                taken.add(name)
                take(name, weight)

    def layer_by_layer() -> None:
        hand()
        for layer in [] if policy.ranks.alone else layers_of(policy.model):
            gathered(layer, hand)

    gathered(policy.model, layer_by_layer)
