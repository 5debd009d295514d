"""Prefill: the keys and values of prompts, each computed once, whatever number of completions continue it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.policy.attention import attend
from worker.policy.decoder import run_layers
from worker.policy.fused import SamplingWeights
from worker.policy.packing import Packing


@dataclass(frozen=True)
class Prefilled:
    """U prompts, ready to be continued."""

    keys: Tensor  # (layers, U, key heads, L, d); where a prompt is shorter than L, what follows is never looked at
    values: Tensor
    lengths_U: Tensor
    logits_U_V: Tensor  # of each prompt's next token


def prefill(weights: SamplingWeights, prompts_U: Sequence[Sequence[int]], device: torch.device) -> Prefilled:
    """Pass U prompts through the model, packed."""
    # A completion of one token, which nothing computes: what predicts it is what is wanted.
    packing = Packing.of(prompts_U, [[0]] * len(prompts_U), range(len(prompts_U)), device)
    keys, values = [], []

    def keep(_: int, queries_N: Tensor, keys_N: Tensor, values_N: Tensor) -> Tensor:
        keys.append(packing.prompt_rows(keys_N))
        values.append(packing.prompt_rows(values_N))
        return attend(queries_N, keys_N, values_N, packing)

    x_N_H = run_layers(weights.layers, weights.embed(packing.ids_N), weights.rotation(packing.positions_N), keep)
    return Prefilled(
        torch.stack(keys),
        torch.stack(values),
        torch.tensor([len(prompt) for prompt in prompts_U], device=device),
        weights.logits(x_N_H.index_select(0, packing.predicting_M)),
    )
