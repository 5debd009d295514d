"""Choosing the next token from logits and one uniform number."""

import torch
from torch import Tensor

from worker.policy.device import abilities

# The largest float32 factor that keeps u × total strictly below total, so that no token of probability 0 is chosen.
_BELOW_ONE = 1 - 2.0**-22


def truncate(logits_R_V: Tensor, *, top_k: int, top_p: float) -> Tensor:
    """Minus infinity outside the k likeliest tokens, and outside the likeliest that make up the probability p.

    The likeliest token always stays. Ties at the edge of the k all stay.
    """
    if 0 < top_k < logits_R_V.shape[-1]:
        edge_R_1 = logits_R_V.topk(top_k, dim=-1).values[:, -1:]
        logits_R_V = logits_R_V.masked_fill(logits_R_V < edge_R_1, float("-inf"))
    if top_p < 1:
        sorted_R_V, order_R_V = logits_R_V.sort(dim=-1, descending=True)
        probabilities_R_V = sorted_R_V.softmax(-1)
        before_R_V = probabilities_R_V.cumsum(-1) - probabilities_R_V
        dropped_R_V = torch.zeros_like(before_R_V, dtype=torch.bool).scatter(-1, order_R_V, before_R_V >= top_p)
        logits_R_V = logits_R_V.masked_fill(dropped_R_V, float("-inf"))
    return logits_R_V


def choose(scaled_R_V: Tensor, uniforms_R: Tensor | None) -> Tensor:
    """The next token of each row, (R,): by inverting the cumulative distribution at u, or the likeliest without u.

    `scaled_R_V` are the logits over the temperature, minus infinity where nothing may be drawn.
    """
    if uniforms_R is None:
        return scaled_R_V.argmax(-1)
    return invert(scaled_R_V.softmax(-1), uniforms_R)


def invert(probabilities_R_V: Tensor, uniforms_R: Tensor) -> Tensor:
    """The token of each row at which the cumulative distribution passes u, (R,)."""
    # CUDA adds up a single row by another method, which rounds differently each time.
    alone = len(probabilities_R_V) == 1 and abilities(probabilities_R_V.device).asynchronous
    cumulative_R_V = (probabilities_R_V.repeat(2, 1) if alone else probabilities_R_V).cumsum(-1)[: len(uniforms_R)]
    threshold_R_1 = uniforms_R[:, None] * _BELOW_ONE * cumulative_R_V[:, -1:]
    return torch.searchsorted(cumulative_R_V, threshold_R_1, right=True)[:, 0].clamp(
        max=probabilities_R_V.shape[-1] - 1
    )


def supports(scaled_R_V: Tensor) -> list[list[int]]:
    """The tokens of each row that may be drawn."""
    places = (
        (scaled_R_V > float("-inf")).nonzero().cpu()
    )  # at once: the device is waited for once, for any number of rows
    counts = torch.bincount(places[:, 0], minlength=len(scaled_R_V)).tolist()
    return [ids.tolist() for ids in torch.split(places[:, 1], counts)]
