"""Log-probabilities of sampled tokens, with and without gradient: what every ratio and every KL rests on."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenBatch:
    """Rows of prompt and completion: prompts padded on the left, completions on the right, so that they meet.

    All completion tokens then stand in the same columns, and the model's head is computed for these alone.
    """

    input_ids_R_L: Tensor
    attention_R_L: Tensor
    positions_R_L: Tensor
    completion_ids_R_T: Tensor
    mask_R_T: Tensor  # True where a completion token stands

    @staticmethod
    def of(
        prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], device: torch.device
    ) -> "TokenBatch":
        """Pad R prompts and their completions into one batch."""
        prompt_width = max(map(len, prompts))
        width = max(1, *map(len, completions))
        ids_R_L = torch.zeros(len(prompts), prompt_width + width, dtype=torch.long)
        attention_R_L = torch.zeros_like(ids_R_L)
        for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            start, end = prompt_width - len(prompt), prompt_width + len(completion)
            ids_R_L[row, start:end] = torch.tensor([*prompt, *completion])
            attention_R_L[row, start:end] = 1
        positions_R_L = (attention_R_L.cumsum(-1) - 1).clamp(min=0)
        return TokenBatch(
            ids_R_L.to(device),
            attention_R_L.to(device),
            positions_R_L.to(device),
            ids_R_L[:, prompt_width:].to(device),
            attention_R_L[:, prompt_width:].bool().to(device),
        )


@dataclass(frozen=True)
class TokenValues:
    """Per completion token, (R, T), float32: 0 where the mask is False."""

    logprob_R_T: Tensor
    entropy_R_T: Tensor


def completion_logprobs(
    model: torch.nn.Module, batch: TokenBatch, *, temperature: float, entropy_gradient: bool = False
) -> TokenValues:
    """Log-probability of each completion token, and the entropy of the distribution it was drawn from, in nats.

    Of the temperature-scaled logits, in float32. Gradients flow where they are enabled; through the entropy only if
    `entropy_gradient`, since its graph holds another copy of the logits.
    """
    width = batch.completion_ids_R_T.shape[1]
    logits_R_T_V = model(
        input_ids=batch.input_ids_R_L,
        attention_mask=batch.attention_R_L,
        position_ids=batch.positions_R_L,
        use_cache=False,
        logits_to_keep=width + 1,  # from the prompt's last token, which predicts the first of the completion
    ).logits[:, :-1]
    # Padding is dropped before the costly part: N completion tokens remain.
    logits_N_V = logits_R_T_V[batch.mask_R_T].float() / temperature
    chosen_N = logits_N_V.gather(-1, batch.completion_ids_R_T[batch.mask_R_T][:, None])[:, 0]
    log_total_N = logits_N_V.logsumexp(-1)
    with torch.set_grad_enabled(torch.is_grad_enabled() and entropy_gradient):
        probabilities_N_V = torch.exp(logits_N_V - log_total_N[:, None])
        entropy_N = log_total_N - (probabilities_N_V * logits_N_V).sum(-1)
    return TokenValues(_scatter(chosen_N - log_total_N, batch.mask_R_T), _scatter(entropy_N, batch.mask_R_T))


def _scatter(values_N: Tensor, mask_R_T: Tensor) -> Tensor:
    return torch.zeros(mask_R_T.shape, dtype=values_N.dtype, device=values_N.device).masked_scatter(mask_R_T, values_N)
