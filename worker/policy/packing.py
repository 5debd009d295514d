"""Packed batches: every token once, in one row without padding; each prompt stands there once for all its completions.

The linear layers, nearly all of the work, see N real tokens. What a token reads is `attention`'s business.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from worker.policy.device import send


@dataclass(frozen=True)
class Packing:
    """N tokens: those of U prompts, then those of R completions, each without its last one, which predicts nothing.

    Completions of a prompt stand together, prompt by prompt. Places are numbers from 0 to N − 1.
    """

    ids_N: Tensor
    positions_N: Tensor
    predicting_M: (
        Tensor  # the place before each of the M completion tokens, completion by completion as they were given
    )
    lengths: tuple[int, ...]  # of the prompts, then of the completions
    counts_U: tuple[int, ...]  # completions of each prompt

    @staticmethod
    def of(
        prompts_U: Sequence[Sequence[int]],
        completions_R: Sequence[Sequence[int]],
        prompt_of_R: Sequence[int],
        device: torch.device,
    ) -> "Packing":
        """The packing of different prompts and of completions, each with the number of its prompt."""
        order_R = sorted(range(len(completions_R)), key=lambda row: prompt_of_R[row])
        rows = [*prompts_U, *(completions_R[row][:-1] for row in order_R)]
        lengths, prompts = torch.tensor([len(row) for row in rows]), len(prompts_U)
        starts = lengths.cumsum(0) - lengths
        of_R = torch.tensor([prompt_of_R[row] for row in order_R])
        begin = torch.cat([torch.zeros(prompts, dtype=torch.long), lengths[of_R]])
        count = int(lengths.sum())
        # The first token of a completion is predicted by its prompt's last, each other one by the one before it.
        own_R, wide = lengths[prompts:], torch.arange(1 + int(lengths[prompts:].max()))
        before_R_T = torch.where(wide > 0, starts[prompts:, None] + wide - 1, (starts + lengths - 1)[of_R][:, None])
        given_R = torch.tensor(order_R).argsort()
        return Packing(
            ids_N=send(torch.tensor([token for row in rows for token in row]), device),
            positions_N=send(torch.arange(count) - torch.repeat_interleave(starts - begin, lengths), device),
            predicting_M=send(before_R_T[given_R][(wide <= own_R[:, None])[given_R]], device),
            lengths=tuple(lengths.tolist()),
            counts_U=tuple(torch.bincount(of_R, minlength=prompts).tolist()),
        )

    @property
    def device(self) -> torch.device:
        """Where the tokens are."""
        return self.ids_N.device

    def prompt_rows(self, states_N: Tensor) -> Tensor:
        """The prompts' states, (N, heads, d), side by side: (U, heads, L, d)."""
        places = self.blocks.places_B[: self.blocks.prompt_places]
        return states_N.index_select(0, places).view(self.blocks.prompts, -1, *states_N.shape[1:]).transpose(1, 2)

    @cached_property
    def blocks(self) -> "Blocks":
        """Where the tokens stand when rows are laid out side by side."""
        return Blocks.of(self)

    @cached_property
    def varlen(self) -> "VarlenRows":
        """Where the rows begin and end."""
        return VarlenRows.of(self)


@dataclass(frozen=True)
class VarlenRows:
    """Rows one behind the other, for kernels that take rows of any length.

    Bounds are where each row begins and where the last ends, of those that read and of those that are read; int32, with the
    most tokens of one row.
    """

    each: tuple[tuple[Tensor, Tensor], tuple[int, int]]  # each row reads itself
    groups: tuple[tuple[Tensor, Tensor], tuple[int, int]]  # the completions of each prompt, as one row, read the prompt
    prompt_tokens: int

    @staticmethod
    def of(packing: Packing) -> "VarlenRows":
        """The rows of a packing."""
        prompts = packing.lengths[: len(packing.counts_U)]
        completions = iter(packing.lengths[len(prompts) :])
        groups = [sum(next(completions) for _ in range(count)) for count in packing.counts_U]

        def bounds(lengths: Sequence[int]) -> Tensor:
            return send(torch.tensor([0, *lengths]).cumsum(0).int(), packing.device)

        # The kernels take 1 for a decode step, in which each row has exactly one token; here a row may have none.
        longest, most = (max(2, *lengths) for lengths in (packing.lengths, groups))
        rows = bounds(packing.lengths)
        return VarlenRows(
            each=((rows, rows), (longest, longest)),
            groups=((bounds(groups), bounds(prompts)), (most, max(prompts))),
            prompt_tokens=sum(prompts),
        )


@dataclass(frozen=True)
class Blocks:
    """Two blocks of rows, one behind the other: prompts (U, L), and completions (U, E, T), E of each prompt.

    Where a row is shorter than the longest, or a prompt has fewer completions, the place 0 fills it up; no query of a real token
    looks there.
    """

    prompts: int  # U
    most: int  # E
    prompt_places: int  # U × L
    places_B: Tensor  # whose token stands where
    order_N: Tensor  # where each place stands
    blank_B: Tensor  # True where a block has no token
    unseen_U_L: Tensor | None  # True where a prompt has no token; None where all are equally long

    @staticmethod
    def of(packing: Packing) -> "Blocks":
        """The blocks of a packing's rows."""
        prompts, lengths = len(packing.counts_U), torch.tensor(packing.lengths)
        starts = lengths.cumsum(0) - lengths
        counts_U = torch.tensor(packing.counts_U)
        most = int(counts_U.max())
        slots_R = (torch.arange(most)[None, :] < counts_U[:, None]).flatten().nonzero()[:, 0]
        of_slots, begun = torch.zeros(2, prompts * most, dtype=torch.long)
        of_slots[slots_R], begun[slots_R] = lengths[prompts:], starts[prompts:]
        places, real = [], []
        for first, length in ((starts[:prompts], lengths[:prompts]), (begun, of_slots)):
            columns = torch.arange(int(length.max()))
            real.append(columns[None, :] < length[:, None])
            places.append((first[:, None] + columns).masked_fill(~real[-1], 0))
        places_B, real_B = (torch.cat([one.flatten() for one in both]) for both in (places, real))
        return Blocks(
            prompts=prompts,
            most=most,
            prompt_places=real[0].numel(),
            places_B=send(places_B, packing.device),
            order_N=send(real_B.nonzero()[:, 0], packing.device),
            blank_B=send(~real_B, packing.device),
            unseen_U_L=None if bool(real[0].all()) else send(~real[0], packing.device),
        )
