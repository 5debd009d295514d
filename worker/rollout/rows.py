"""Rows: each writes one completion, and stands in a batch until it ends."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.rollout.draws import Draws
from worker.rollout.engine import Completion, Request


@dataclass
class Row:
    """Which completion is written, of which of the P prompts, and by which numbers it is drawn."""

    completion: Completion
    prompt: int
    group: int  # among the step's
    index: int  # within the group


def rows_of(request: Request) -> list[Row]:
    """A row for each completion, those of a prompt one after the other."""
    return [
        Row(Completion(), p, request.first_group + p, g)
        for p in range(len(request.prompts_P))
        for g in range(request.group_size)
    ]


def row_keys(draws: Draws, rows: Sequence[Row]) -> Tensor:
    """The key of each row's random numbers, (R,)."""
    groups, indices = ([getattr(row, name) for row in rows] for name in ("group", "index"))
    return draws.keys(torch.tensor(groups), torch.tensor(indices))
