"""Packed batches: every token once, in one row without padding; each prompt stands there once for all its completions.

The linear layers, nearly all of the work, see N real tokens. What a token reads is `attention`'s business.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

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
        """The packing of different prompts and of completions, each with the number of its prompt.

        Raises ValueError if one of them has no tokens: nothing would predict what follows, or nothing would be predicted.
        """
        if not all(map(len, (*prompts_U, *completions_R))):
            raise ValueError("a prompt or a completion has no tokens")
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

    @property
    def longest_row(self) -> int:
        """The longest prompt and the longest completion together."""
        prompts = len(self.counts_U)
        return max(self.lengths[:prompts]) + max(self.lengths[prompts:])

    def prompt_rows(self, states_N: Tensor) -> Tensor:
        """The prompts' states, (N, heads, d), side by side: (U, heads, L, d)."""
        (prompts, _, width), (heads, d) = self.blocks.prompts, states_N.shape[1:]
        places = self.blocks.by_head(heads).places_B[: prompts * heads * width]
        return states_N.reshape(-1, d).index_select(0, places).view(prompts, heads, width, d)

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


class Rows(NamedTuple):
    """C chunks of E rows each, T tokens wide."""

    chunks: int
    each: int
    width: int


class ByHead(NamedTuple):
    """Where the heads of tokens stand in the two blocks, each (C, kv heads, E, heads of each, T), laid out flat, the prompts' first."""

    places_B: Tensor  # which of the N × heads stands where
    order_N: Tensor  # where each of the N × heads stands
    blank_B: Tensor  # True where a row has no token


@dataclass(frozen=True)
class Blocks:
    """Two blocks of rows side by side: the prompts, and the completions in chunks, each of which reads one prompt.

    All chunks have the same number of rows, the mean of a prompt's completions, rounded up; a prompt with more of them has several chunks. So
    there are at most twice as many rows as completions and prompts together, however unequal the prompts are.
    """

    prompts: Rows
    completions: Rows  # of width 0 where each completion is a single token
    places: tuple[Tensor, Tensor]  # of each block: which token stands where, (C × E, T); N where none does
    count: int  # N
    prompt_of_C: Tensor | None  # which prompt a chunk reads; None if it is the one of the same number
    unseen_C_L: Tensor | None  # True where a chunk's prompt has no token; None if all prompts are equally long

    @staticmethod
    def of(packing: Packing) -> "Blocks":
        """The blocks of a packing's rows."""
        prompts, lengths = len(packing.counts_U), torch.tensor(packing.lengths)
        ends, counts_U = lengths.cumsum(0), torch.tensor(packing.counts_U)
        count, each = int(ends[-1]), -(-int(counts_U.sum()) // prompts)
        chunks_U = (counts_U + each - 1) // each
        of_C = torch.arange(prompts).repeat_interleave(chunks_U)
        # A prompt's completions fill its chunks one after the other.
        rows = torch.arange(int(chunks_U.max()) * each)
        filled = (rows < counts_U[:, None])[rows < (chunks_U * each)[:, None]]
        slots, slot_ends = torch.zeros(2, len(filled), dtype=torch.long)
        slots[filled], slot_ends[filled] = lengths[prompts:], ends[prompts:]
        own = _places(ends[:prompts], lengths[:prompts], blank=count)
        completions = _places(slot_ends, slots, blank=count)
        unseen = own[of_C] == count
        return Blocks(
            prompts=Rows(prompts, 1, own.shape[1]),
            completions=Rows(len(of_C), each, completions.shape[1]),
            places=(send(own, packing.device), send(completions, packing.device)),
            count=count,
            prompt_of_C=None if bool((chunks_U == 1).all()) else send(of_C, packing.device),
            unseen_C_L=send(unseen, packing.device) if bool(unseen.any()) else None,
        )

    def by_head(self, key_heads: int, each: int = 1) -> ByHead:
        """For states of `key_heads` × `each` heads."""
        if (key_heads, each) not in self._by_head:
            heads, device = key_heads * each, self.places[0].device
            of_head = torch.arange(heads, device=device).view(1, key_heads, 1, each, 1)
            rows = zip(self.places, (self.prompts, self.completions), strict=True)
            places_B = torch.cat(
                [(at.view(one.chunks, 1, one.each, 1, one.width) * heads + of_head).flatten() for at, one in rows]
            )
            real = self.count * heads
            order_N = torch.empty(real + heads, dtype=torch.long, device=device)
            order_N[places_B] = torch.arange(len(places_B), device=device)
            self._by_head[key_heads, each] = ByHead(places_B.clamp(max=real - 1), order_N[:real], places_B >= real)
        return self._by_head[key_heads, each]

    @cached_property
    def _by_head(self) -> dict[tuple[int, int], ByHead]:
        return {}


def _places(ends_R: Tensor, lengths_R: Tensor, blank: int) -> Tensor:
    """The places of each row's tokens, (rows, longest)."""
    columns = torch.arange(int(lengths_R.max()))
    return ((ends_R - lengths_R)[:, None] + columns).masked_fill(columns >= lengths_R[:, None], blank)
