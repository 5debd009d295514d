"""From hidden states to log-probabilities and entropies, a few rows of the vocabulary at a time.

Rows × vocabulary is the largest array of a training pass; here it exists for a chunk of rows only, unless it is small. The
gradient computes a chunk's logits again, which is one product more in four of this layer. It adds to a gradient of the weight
that is there already, in its place: hooks on that parameter would not see it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from worker.policy.device import abilities
from worker.policy.linear import Projection, add_product, product

_TABLE_ROWS = 8192  # of the output layer's gradient, computed at once


class TokenStatistics(NamedTuple):
    """Of M tokens, in float32 at least."""

    logprob_M: Tensor  # over all tokens
    entropy_M: Tensor  # of the distribution over all tokens, in nats
    support_logprob_M: Tensor  # over the support if there is one, otherwise over all tokens


class Output(NamedTuple):
    """The output layer."""

    weight_V_H: Tensor
    bias_V: Tensor | None


def chunk_rows(vocabulary: int, device: torch.device) -> int:
    """How many rows of logits exist at once."""
    return max(16, abilities(device).logits_bytes // (4 * vocabulary))


def token_statistics(
    hidden_M_H: Tensor, output: Output, ids_M: Tensor, *, temperature: float, support_M_K: Tensor | None = None
) -> TokenStatistics:
    """Log-probability of each token and entropy of its distribution, with gradients of both.

    `support_M_K` are the tokens among which a log-probability is asked for too, -1 where there are fewer than K.
    """
    size, most = 4 * len(ids_M) * len(output.weight_V_H), abilities(hidden_M_H.device).kept_logits_bytes
    given = hidden_M_H, *output, ids_M, temperature, support_M_K, torch.is_grad_enabled() and size <= most
    logprob, entropy, support = _Statistics.apply(*given)  # type: ignore[no-untyped-call]
    return TokenStatistics(logprob, entropy, logprob if support is None else support)


class _Statistics(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        ids: Tensor,
        temperature: float,
        support: Tensor | None,
        keeps: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        kind = hidden.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        count, vocabulary = len(ids), len(weight)
        step = chunk_rows(vocabulary, hidden.device)
        logits_of = _logits(weight, bias, dtype, temperature)
        logprob, entropy, log_total = (
            torch.empty(count, device=hidden.device, dtype=at_least_float32(dtype)) for _ in range(3)
        )
        among, kept = None if support is None else torch.empty_like(logprob), list[Tensor]()
        with torch.autocast(kind, enabled=False):  # which would take the mean in half precision
            for chunk in _chunks(count, step):
                logits = logits_of(hidden[chunk].to(dtype))
                peak = logits.amax(-1, keepdim=True)
                logits.sub_(peak)
                share = logits.exp()
                total = share.sum(-1, keepdim=True)
                chosen = logits.gather(-1, ids[chunk][:, None])[:, 0]
                logprob[chunk] = chosen - total.log()[:, 0]
                entropy[chunk] = total.log()[:, 0] - share.mul_(logits).sum(-1) / total[:, 0]  # the mean of −log share
                log_total[chunk] = (total.log() if keeps else peak + total.log())[:, 0]
                kept += [logits] if keeps else []
                if support is not None and among is not None:
                    among[chunk] = chosen - among_support(logits, support[chunk]).logsumexp(-1)
        ctx.save_for_backward(hidden, weight, bias, ids, support, log_total, entropy, *kept)  # type: ignore[arg-type]
        ctx.dtype, ctx.temperature, ctx.step = dtype, temperature, step  # type: ignore[attr-defined]
        ctx.set_materialize_grads(False)
        return logprob, entropy, among

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, ids, support, log_total, entropy, *kept = ctx.saved_tensors  # type: ignore[attr-defined]
        dtype, temperature = ctx.dtype, ctx.temperature  # type: ignore[attr-defined]
        of_hidden, of_weight, of_bias, *_ = ctx.needs_input_grad  # type: ignore[attr-defined]
        to_hidden = torch.empty_like(hidden) if of_hidden else None
        # An earlier micro-batch may have left a gradient: it is added to in its place, since another table would be as large.
        to_weight = (torch.zeros_like(weight) if weight.grad is None else weight.grad) if of_weight else None
        to_bias = torch.zeros_like(bias) if of_bias else None
        turned = weight.to(dtype).t()
        logits_of = _logits(weight, bias, dtype, temperature)
        for number, chunk in enumerate(_chunks(len(ids), ctx.step)):  # type: ignore[attr-defined]
            inputs, shift = hidden[chunk].to(dtype), log_total[chunk][:, None]
            share = (kept[number] - shift if kept else logits_of(inputs).sub_(shift)).exp_()
            to_logits = _to_logits(
                share,
                ids[chunk],
                None if support is None else support[chunk],
                entropy[chunk],
                *(None if gradient is None else gradient[chunk] for gradient in gradients),
            )
            passed = (to_logits if temperature == 1 else to_logits.div_(temperature)).to(dtype)
            if to_hidden is not None:
                to_hidden[chunk] = product(passed, turned).to(hidden.dtype)
            if to_weight is not None:
                for part in _chunks(len(to_weight), _TABLE_ROWS):
                    add_product(to_weight[part], passed[:, part].t(), inputs.t())
            if to_bias is not None:
                to_bias += passed.sum(0)
        return to_hidden, None if weight.grad is not None else to_weight, to_bias, None, None, None, None


def _chunks(count: int, step: int) -> list[slice]:
    return [slice(first, min(first + step, count)) for first in range(0, count, step)]


def _logits(weight: Tensor, bias: Tensor | None, dtype: torch.dtype, temperature: float) -> Projection:
    """Tempered logits, in memory of their own."""
    weight = weight.to(dtype)

    def project(hidden: Tensor) -> Tensor:
        logits = product(hidden, weight)
        logits = (logits if bias is None else logits + bias).to(at_least_float32(dtype))
        return logits if temperature == 1 else logits.div_(temperature)

    return project


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The precision that logits are read in."""
    return torch.promote_types(dtype, torch.float32)


def among_support(logits_M_V: Tensor, support_M_K: Tensor) -> Tensor:
    """The logits of the support's tokens, (M, K), minus infinity where there are fewer."""
    return logits_M_V.gather(-1, support_M_K.clamp(min=0)).masked_fill(support_M_K < 0, float("-inf"))


def _to_logits(
    share_M_V: Tensor,
    ids_M: Tensor,
    support_M_K: Tensor | None,
    entropy_M: Tensor,
    of_logprob_M: Tensor | None,
    of_entropy_M: Tensor | None,
    of_among_M: Tensor | None,
) -> Tensor:
    """The gradient with respect to the tempered logits, written over the probabilities."""
    among = None
    if support_M_K is not None and of_among_M is not None:
        inside = support_M_K >= 0
        among = share_M_V.gather(-1, support_M_K.clamp(min=0)) * inside
        among = among / among.sum(-1, keepdim=True) * of_among_M[:, None]
    bent = None
    if of_entropy_M is not None:  # of −Σ p log p
        bent = (torch.special.entr(share_M_V) - share_M_V * entropy_M[:, None]).mul_(of_entropy_M[:, None])
    of_chosen_M = torch.zeros_like(entropy_M) if of_logprob_M is None else of_logprob_M
    gradient = share_M_V.mul_(-of_chosen_M[:, None])
    if among is not None and support_M_K is not None and of_among_M is not None:
        gradient.scatter_add_(-1, support_M_K.clamp(min=0), -among)
        of_chosen_M = of_chosen_M + of_among_M
    gradient.scatter_add_(-1, ids_M[:, None], of_chosen_M[:, None])
    return gradient if bent is None else gradient.add_(bent)
