"""Log-probabilities of sampled tokens, with and without gradient: what every ratio and every KL rests on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from worker.policy.value_head import ValueHead


@dataclass(frozen=True)
class TokenBatch:
    """R completions, padded on the right, and the U different prompts that they continue, padded on the left.

    The two meet, so that all completion tokens stand in the same columns of a row, and every prompt is there once.
    """

    prompt_ids_U_L: Tensor
    prompt_mask_U_L: Tensor
    prompt_of_R: Tensor  # which of the U prompts a completion continues
    completion_ids_R_T: Tensor
    mask_R_T: Tensor  # True where a completion token stands
    support_R_T_K: Tensor | None = None  # the tokens that could be drawn, padded with -1; None: all of them

    @staticmethod
    def of(
        prompts: Sequence[Sequence[int]],
        completions: Sequence[Sequence[int]],
        device: torch.device,
        supports: Sequence[Sequence[Sequence[int]]] | None = None,
    ) -> "TokenBatch":
        """The batch of R completions and the prompt of each; equal prompts are put in once.

        `supports` names, for each token of each completion, the tokens that the sampler could draw.
        """
        different = {tuple(prompt): None for prompt in prompts}
        places = {prompt: place for place, prompt in enumerate(different)}
        prompt_ids, prompt_mask = _padded(list(different), left=True)
        completion_ids, mask = _padded(completions, left=False)
        of_R = torch.tensor([places[tuple(prompt)] for prompt in prompts])
        support = None if supports is None else _padded_supports(supports, mask.shape[1]).to(device)
        return TokenBatch(
            prompt_ids.to(device),
            prompt_mask.to(device),
            of_R.to(device),
            completion_ids.to(device),
            mask.to(device),
            support,
        )


@dataclass(frozen=True)
class TokenValues:
    """Per completion token, (R, T), float32: 0 where the mask is False."""

    logprob_R_T: Tensor
    entropy_R_T: Tensor  # of the distribution over all tokens
    full_logprob_R_T: Tensor  # over all tokens, where logprob is over the sampler's support; else the same
    value_R_T: Tensor | None = None  # of the state before the token, where there is a value head


def completion_logprobs(
    model: torch.nn.Module,
    batch: TokenBatch,
    *,
    temperature: float,
    entropy_gradient: bool = False,
    share_prompts: bool = True,
    value_head: ValueHead | None = None,
) -> TokenValues:
    """Log-probability of each completion token, and the entropy of the distribution it was drawn from, in nats.

    Of the temperature-scaled logits, in float32. Gradients flow where they are enabled; through the entropy only if
    `entropy_gradient`, since its graph holds another copy of the logits. With `share_prompts` a prompt is computed once
    for all its completions, with gradient; without, once for each of them. Where the batch has a support, log-probs are
    renormalised over it, whatever the weights are now: truncating again would drop tokens that were drawn.
    """
    with _hidden_states(model, wanted=value_head is not None) as hidden:
        logits_R_T_V = (_logits_sharing_prompts if share_prompts else _logits_row_by_row)(model, batch)
    value_R_T = None if value_head is None else value_head(_aligned(hidden, batch)).masked_fill(~batch.mask_R_T, 0.0)
    # Padding is dropped before the costly part: N completion tokens remain.
    logits_N_V = logits_R_T_V[batch.mask_R_T].float() / temperature
    chosen_N = logits_N_V.gather(-1, batch.completion_ids_R_T[batch.mask_R_T][:, None])[:, 0]
    log_total_N = logits_N_V.logsumexp(-1)
    with torch.set_grad_enabled(torch.is_grad_enabled() and entropy_gradient):
        probabilities_N_V = torch.exp(logits_N_V - log_total_N[:, None])
        entropy_N = log_total_N - (probabilities_N_V * logits_N_V).sum(-1)
    full_R_T = logprob_R_T = _scatter(chosen_N - log_total_N, batch.mask_R_T)
    if batch.support_R_T_K is not None:
        support_N_K = batch.support_R_T_K[batch.mask_R_T]
        among_N_K = logits_N_V.gather(-1, support_N_K.clamp(min=0)).masked_fill(support_N_K < 0, float("-inf"))
        logprob_R_T = _scatter(chosen_N - among_N_K.logsumexp(-1), batch.mask_R_T)
    return TokenValues(logprob_R_T, _scatter(entropy_N, batch.mask_R_T), full_R_T, value_R_T)


def can_share_prompts(config: PreTrainedConfig) -> bool:
    """Whether the keys and values of a prompt are all that its completions need of it, layer by layer.

    Not so where a layer keeps a running state, or forgets what left its window.
    """
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)


def _logits_sharing_prompts(model: torch.nn.Module, batch: TokenBatch) -> Tensor:
    """The prompts first, then the completions against the keys and values of their prompts. Returns (R, T, V)."""
    cache = DynamicCache()
    of_R, positions_U_L = batch.prompt_of_R, _positions(batch.prompt_mask_U_L)
    first_U_1_V: Tensor = model(
        input_ids=batch.prompt_ids_U_L,
        attention_mask=batch.prompt_mask_U_L,
        position_ids=positions_U_L,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,  # the prompt's last token predicts the first of the completion
    ).logits
    width = batch.completion_ids_R_T.shape[1]
    if width == 1:
        return first_U_1_V[of_R]
    cache.batch_select_indices(of_R)
    mask_R_T = batch.mask_R_T[:, :-1].long()
    begin_R_1 = positions_U_L[of_R, -1:] + 1
    later_R_T_V: Tensor = model(
        input_ids=batch.completion_ids_R_T[:, :-1],
        attention_mask=torch.cat([batch.prompt_mask_U_L[of_R], mask_R_T], dim=1),
        position_ids=begin_R_1 + torch.arange(width - 1, device=of_R.device),
        past_key_values=cache,
        use_cache=True,
    ).logits
    return torch.cat([first_U_1_V[of_R], later_R_T_V], dim=1)


def _logits_row_by_row(model: torch.nn.Module, batch: TokenBatch) -> Tensor:
    """Each completion behind a prompt of its own, in one pass. Returns (R, T, V)."""
    mask_R_L = torch.cat([batch.prompt_mask_U_L[batch.prompt_of_R], batch.mask_R_T.long()], dim=1)
    logits: Tensor = model(
        input_ids=torch.cat([batch.prompt_ids_U_L[batch.prompt_of_R], batch.completion_ids_R_T], dim=1),
        attention_mask=mask_R_L,
        position_ids=_positions(mask_R_L),
        use_cache=False,
        logits_to_keep=batch.completion_ids_R_T.shape[1] + 1,
    ).logits
    return logits[:, :-1]


@contextmanager
def _hidden_states(model: torch.nn.Module, *, wanted: bool) -> Iterator[list[Tensor]]:
    """What the output layer reads in the passes made inside: the last hidden states of the positions that have logits."""
    seen: list[Tensor] = []
    if not wanted:
        yield seen
        return
    output: torch.nn.Module = cast(PreTrainedModel, model).get_output_embeddings()  # type: ignore[no-untyped-call]
    hook = output.register_forward_pre_hook(lambda _module, arguments: seen.append(arguments[0]))
    try:
        yield seen
    finally:
        hook.remove()


def _aligned(hidden: Sequence[Tensor], batch: TokenBatch) -> Tensor:
    """The hidden states (R, T, H) behind the logits, from one pass (row by row) or two (shared prompts)."""
    if hidden[0].shape[1] == batch.mask_R_T.shape[1] + 1:
        return hidden[0][:, :-1]
    return torch.cat([hidden[0][batch.prompt_of_R], *hidden[1:]], dim=1)


def _padded_supports(supports: Sequence[Sequence[Sequence[int]]], width: int) -> Tensor:
    """Token ids (R, T, K), -1 where a support has fewer than K tokens."""
    most = max((len(ids) for completion in supports for ids in completion), default=1)
    padded = torch.full((len(supports), width, most), -1, dtype=torch.long)
    for row, completion in enumerate(supports):
        for position, ids in enumerate(completion):
            padded[row, position, : len(ids)] = torch.tensor(list(ids))
    return padded


def _padded(rows: Sequence[Sequence[int]], *, left: bool) -> tuple[Tensor, Tensor]:
    """Token ids (zeros as padding) and their mask; the mask of completions (right) is boolean."""
    width = max(1, *map(len, rows)) if len(rows) > 1 else max(1, len(rows[0]))
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.long if left else torch.bool)
    for row, tokens in enumerate(rows):
        start = width - len(tokens) if left else 0
        ids[row, start : start + len(tokens)] = torch.tensor(list(tokens))
        mask[row, start : start + len(tokens)] = 1
    return ids, mask


def _positions(mask_R_L: Tensor) -> Tensor:
    return (mask_R_L.cumsum(-1) - 1).clamp(min=0)


def _scatter(values_N: Tensor, mask_R_T: Tensor) -> Tensor:
    return torch.zeros(mask_R_T.shape, dtype=values_N.dtype, device=values_N.device).masked_scatter(mask_R_T, values_N)
