"""A reward model: a sequence classifier that gives a prompt and its completion one number."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import cast

import torch
from peft import PeftModel
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from backend.contract.model import Lora
from worker.errors import RunFailure
from worker.failure import opening
from worker.policy import adapter
from worker.policy.device import autocast
from worker.policy.loading import with_new_adapters
from worker.policy.sources import Pretrained, require_safetensors
from worker.ranks.ranks import ALONE

SCORING_TOKENS = 16_384
"""Tokens, with padding, of one forward pass without gradient."""

Prompt = str | Sequence[dict[str, str]]
"""A raw text, or chat messages."""


class RewardModel:
    """Reads a prompt and a completion and gives the logit of one output: the reward.

    Weights are float32, and the model stays in evaluation mode. What `save` writes, AutoModelForSequenceClassification opens; with
    adapters that is the adapters and the head.
    """

    ranks = ALONE

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        tokenizer: PreTrainedTokenizerBase,
        device: torch.device,
        dtype: str,
        *,
        label: int = 0,
    ) -> None:
        cast(torch.nn.Module, model).to(device).eval()
        self.model, self.tokenizer, self.device = model, tokenizer, device
        self._dtype, self._label = dtype, label
        # The model is given the id to pad with, too, and reads its score at the last token that is not this one. Where it is the
        # end-of-text token, as in many language models, the end of the text itself would be taken for padding.
        text_config = model.config.get_text_config()
        candidates = [one for one in (text_config.pad_token_id, tokenizer.pad_token_id, 0, 1) if isinstance(one, int)]
        self._padding = next(one for one in candidates if one >= 0 and one != tokenizer.eos_token_id)
        text_config.pad_token_id = self._padding

    @property
    def context(self) -> int | None:
        """The longest sequence in tokens that the model was made for; None if its configuration does not say."""
        limit = getattr(self.model.config, "max_position_embeddings", None)
        return limit if isinstance(limit, int) else None

    def named_parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        """What is trained, by name: all its parameters, or the adapters and the head."""
        named = cast(torch.nn.Module, self.model).named_parameters()
        return [(name, parameter) for name, parameter in named if parameter.requires_grad]

    def token_ids(self, prompt: Prompt, completion: str) -> list[int]:
        """The prompt as this model's tokenizer renders it, the completion right behind it, and the end of the text.

        Tokenized as one text: cut in two, some tokenizers would begin the completion with a space.
        """
        tokenizer = self.tokenizer
        if isinstance(prompt, str) or tokenizer.chat_template is None:
            raw = prompt if isinstance(prompt, str) else "\n\n".join(message["content"] for message in prompt)
            ids = list(tokenizer(raw + completion)["input_ids"])
        else:
            chat = str(tokenizer.apply_chat_template(list(prompt), tokenize=False, add_generation_prompt=True))
            ids = list(tokenizer(chat + completion, add_special_tokens=False)["input_ids"])
        end = tokenizer.eos_token_id
        return ids if end is None or ids[-1:] == [end] else [*ids, end]

    def rewards_N(self, sequences: Sequence[Sequence[int]]) -> Tensor:
        """The rewards of N sequences of token ids in one forward pass, shape (N,), float32; with gradient where it is enabled."""
        rows = [torch.tensor(sequence, dtype=torch.long) for sequence in sequences]
        ids_N_T = pad_sequence(rows, batch_first=True, padding_value=self._padding)
        mask_N_T = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        with autocast(self.device, self._dtype):
            logits_N_L = self.model(
                input_ids=ids_N_T.to(self.device), attention_mask=mask_N_T.to(self.device), use_cache=False
            ).logits
        return cast(Tensor, logits_N_L[:, self._label].float())

    @torch.no_grad()
    def scores(self, sequences: Sequence[Sequence[int]]) -> list[float]:
        """The rewards in the order of `sequences`, computed in batches of similar length.

        Equal sequences are computed once: what rounding makes of them in different batches would pass for a difference.
        """
        read = [tuple(sequence) for sequence in sequences]
        order = sorted(set(read), key=lambda sequence: (len(sequence), sequence), reverse=True)
        found: dict[tuple[int, ...], float] = {}
        while order:
            rows = max(1, SCORING_TOKENS // len(order[0]))
            batch, order = order[:rows], order[rows:]
            found.update(zip(batch, self.rewards_N(batch).tolist(), strict=True))
        return [found[sequence] for sequence in read]

    def save(self, folder: Path) -> None:
        """Write what `from_pretrained` opens: the classifier and the tokenizer. Safetensors and JSON only."""
        adapter.save_model(self.model, folder)
        self.tokenizer.save_pretrained(folder)


def load_reward_model(
    source: Pretrained, device: torch.device, dtype: str, *, label: int = 0, trainable: bool = False
) -> RewardModel:
    """A trained classifier; `label` is the output that counts, of those it has.

    Adapters of one are merged into their base, unless they are `trainable`. Raises RunFailure if it is not there or has no such
    output.
    """
    model: PreTrainedModel | PeftModel
    if source.base is not None:
        model = _on_its_base(source, source.base, trainable=trainable)
    else:
        model, missing = _classifier(source)
        if missing:  # transformers would fill a missing head with random numbers, and so would the rewards be
            raise _unavailable(source, f"it is not a sequence classifier: it lacks {', '.join(sorted(missing)):.200}")
    outputs = model.config.num_labels or 0
    if label >= outputs:
        raise _unavailable(source, f"it has {outputs} outputs, counted from 0, and label {label} is not among them")
    return RewardModel(model, _tokenizer(source), device, dtype, label=label)


def new_reward_model(
    source: Pretrained, device: torch.device, dtype: str, *, seed: int, lora: Lora | None = None
) -> RewardModel:
    """A language model's weights under a new head with one output, drawn from `seed`: where training begins.

    With `lora`, adapters are trained with the head, and the weights stay. Raises RunFailure `reward_model_unavailable`.
    """
    torch.manual_seed(seed)  # transformers draws the head from the global generator only
    model, missing = _classifier(source, num_labels=1)
    head = [name for name in missing if not name.startswith(f"{model.base_model_prefix}.")]
    if len(head) != len(missing):
        raise _unavailable(source, "weights of the language model are missing")
    if lora is None:
        return RewardModel(model, _tokenizer(source), device, dtype)
    adapter.name_base(model, source.name or source.location)
    trained = with_new_adapters(model, lora, "SEQ_CLS", source.revision)
    return RewardModel(trained, _tokenizer(source), device, dtype)


def _on_its_base(source: Pretrained, base: Pretrained, *, trainable: bool) -> PreTrainedModel | PeftModel:
    """The classifier that an adapter makes of its base. The adapter brings the head; one of a language model has none."""
    model, heads = _classifier(base, num_labels=1)
    adapter.name_base(model, base.name or base.location)
    folder = Path(source.location)
    lacking = adapter.lacks(folder, heads)
    if lacking:  # the rewards would be random numbers
        raise _unavailable(source, f"it is an adapter of a language model: it lacks {', '.join(lacking):.200}")
    adapted = adapter.with_adapter(model, folder, trainable=trainable)
    return adapted if trainable else adapter.merged(adapted, folder)


def _classifier(source: Pretrained, **options: int) -> tuple[PreTrainedModel, set[str]]:
    """The model, and the names of the weights that its files lack."""
    if source.base is not None:
        raise _unavailable(source, "it is an adapter, and a reward model is trained on whole weights; choose its base")
    with opening(partial(_unavailable, source)):
        require_safetensors(source)
        model, loading = AutoModelForSequenceClassification.from_pretrained(
            source.location,
            revision=source.revision or "main",
            trust_remote_code=False,
            local_files_only=source.cached,
            adapter_kwargs={"local_files_only": source.cached},
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
            **options,
        )
    return cast(PreTrainedModel, model), set(loading["missing_keys"])


def _tokenizer(source: Pretrained) -> PreTrainedTokenizerBase:
    revision = source.revision or "main"
    with opening(partial(_unavailable, source)):
        tokenizer = AutoTokenizer.from_pretrained(
            source.location, revision=revision, trust_remote_code=False, local_files_only=source.cached
        )
    return cast(PreTrainedTokenizerBase, tokenizer)


def _unavailable(source: Pretrained, why: str, details: str | None = None) -> RunFailure:
    return RunFailure(
        "reward_model_unavailable", f"The reward model {source.location} cannot be loaded: {why}.", details
    )
