"""Choosing the next token from logits and one uniform number."""

import torch
from torch import Tensor

from worker.policy.device import abilities

# The largest float32 factor that keeps u × total strictly below total, so that no token of probability 0 is chosen.
_BELOW_ONE = 1 - 2.0**-22
_LIKELIEST = 1024  # tokens that are looked at first


def truncate(logits_R_V: Tensor, *, top_k: int, top_p: float) -> Tensor:
    """Minus infinity outside the k likeliest tokens, and outside the likeliest that make up the probability p.

    The likeliest token always stays. Ties at the edge all stay.
    """
    if 0 < top_k < logits_R_V.shape[-1]:
        edge_R_1 = logits_R_V.topk(top_k, dim=-1).values[:, -1:]
        logits_R_V = logits_R_V.masked_fill(logits_R_V < edge_R_1, float("-inf"))
    if top_p < 1:
        # A recorded step of a GPU cannot look at a number, and so not whether some of the tokens suffice.
        most = logits_R_V.shape[-1] if abilities(logits_R_V.device).asynchronous else _LIKELIEST
        logits_R_V = logits_R_V.masked_fill(logits_R_V < _edge(logits_R_V, top_p, most), float("-inf"))
    return logits_R_V


def _edge(logits_R_V: Tensor, top_p: float, most: int) -> Tensor:
    """The smallest logit of the likeliest tokens that make up p, (R, 1). Rows in which it takes more than `most` tokens are sorted whole."""
    whole = most >= logits_R_V.shape[-1]
    top_R_K = logits_R_V.sort(descending=True).values if whole else logits_R_V.topk(most).values
    largest_R_1 = top_R_K[:, :1]  # taken off first: of large logits, differences lose their digits in a sum
    probabilities_R_K = (top_R_K - largest_R_1).exp() / (logits_R_V - largest_R_1).exp().sum(-1, keepdim=True)
    before_R_K = _cumulative(probabilities_R_K) - probabilities_R_K
    kept_R_1 = (before_R_K < top_p).sum(-1, keepdim=True)
    edge_R_1 = top_R_K.gather(-1, (kept_R_1 - 1).clamp(min=0))  # none where p itself is rounded to 0
    if not whole and len(more := (kept_R_1[:, 0] == most).nonzero()[:, 0]):
        edge_R_1[more] = _edge(logits_R_V[more], top_p, logits_R_V.shape[-1])
    return edge_R_1


def choose(scaled_R_V: Tensor, uniforms_R: Tensor | None) -> Tensor:
    """The next token of each row, (R,): by inverting the cumulative distribution at u, or the likeliest without u.

    `scaled_R_V` are the logits over the temperature, minus infinity where nothing may be drawn.
    """
    if uniforms_R is None:
        return scaled_R_V.argmax(-1)
    return invert(scaled_R_V.softmax(-1), uniforms_R)


def invert(probabilities_R_V: Tensor, uniforms_R: Tensor) -> Tensor:
    """The token of each row at which the cumulative distribution passes u, (R,)."""
    cumulative_R_V = _cumulative(probabilities_R_V)
    threshold_R_1 = uniforms_R[:, None] * _BELOW_ONE * cumulative_R_V[:, -1:]
    return torch.searchsorted(cumulative_R_V, threshold_R_1, right=True)[:, 0].clamp(
        max=probabilities_R_V.shape[-1] - 1
    )


def _cumulative(values_R_V: Tensor) -> Tensor:
    # CUDA adds up a single row by another method, which rounds differently each time.
    alone = len(values_R_V) == 1 and abilities(values_R_V.device).asynchronous
    return (values_R_V.repeat(2, 1) if alone else values_R_V).cumsum(-1)[: len(values_R_V)]


def supports(scaled_R_V: Tensor) -> list[list[int]]:
    """The tokens of each row that may be drawn."""
    # at once: the device is waited for once, for any number of rows
    places = (scaled_R_V > float("-inf")).nonzero().cpu()
    counts = torch.bincount(places[:, 0], minlength=len(scaled_R_V)).tolist()
    return [ids.tolist() for ids in torch.split(places[:, 1], counts)]
