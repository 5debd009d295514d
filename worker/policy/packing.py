"""Packed batches: every token once, in one row without padding; each prompt stands there once for all its completions.

The linear layers, nearly all of the work, see N real tokens. Only inside the attention are rows laid out side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional


@dataclass(frozen=True)
class Packing:
    """N tokens: those of the U prompts, then those of the R completions, each without its last one, which predicts nothing.

    Places are numbers from 0 to N − 1. Laid out, the tokens make two blocks of rows: prompts (U, L) and completions (R, T).
    Where a row is shorter than the longest, the place 0 fills it up; no query of a real token looks there.
    """

    ids_N: Tensor
    positions_N: Tensor
    prompt_places_U_L: Tensor
    completion_places_R_T: Tensor  # T may be 0: completions of a single token
    prompt_of_R: Tensor
    seen_R_1_T_K: Tensor  # True where a completion's token looks; K: its prompt's L places, then its own T
    order_N: Tensor  # where in the two blocks, one behind the other, each place stands
    filled_B: Tensor  # True where a block has no token
    each: int | None  # completions of each prompt, where they stand together and are equally many
    predicting_M: Tensor  # the place before each of the M completion tokens, completion by completion

    @staticmethod
    def of(
        prompts_U: Sequence[Sequence[int]], completions_R: Sequence[Sequence[int]], prompt_of_R: Sequence[int]
    ) -> "Packing":
        """The packing of different prompts and of completions, each with the number of its prompt."""
        rows = [*prompts_U, *(ids[:-1] for ids in completions_R)]
        lengths = torch.tensor([len(row) for row in rows])
        starts = lengths.cumsum(0) - lengths
        prompts = len(prompts_U)
        of_R = torch.tensor(list(prompt_of_R))
        begin = torch.cat([torch.zeros(prompts, dtype=torch.long), lengths[of_R]])
        places = [_places(starts[:prompts], lengths[:prompts]), _places(starts[prompts:], lengths[prompts:])]
        real = [_real(lengths[:prompts]), _real(lengths[prompts:])]
        count = int(lengths.sum())
        real_B = torch.cat([mask.flatten() for mask in real])
        each, rest = divmod(len(of_R), prompts)
        together = not rest and torch.equal(of_R, torch.arange(prompts).repeat_interleave(each))
        own_T_T = torch.ones(real[1].shape[1], real[1].shape[1], dtype=torch.bool).tril()
        seen = torch.cat(
            [real[0][of_R][:, None].expand(-1, len(own_T_T), -1), own_T_T.expand(len(of_R), -1, -1)], dim=2
        )
        last_of_prompt_R = (starts + lengths - 1)[of_R]
        # The first token of a completion is predicted by its prompt's last, each other one by the one before it.
        before_R_T = torch.cat([last_of_prompt_R[:, None], places[1]], dim=1)
        own = torch.arange(before_R_T.shape[1])[None, :] <= lengths[prompts:, None]
        return Packing(
            ids_N=torch.tensor([token for row in rows for token in row]),
            positions_N=torch.arange(count) - torch.repeat_interleave(starts - begin, lengths),
            prompt_places_U_L=places[0],
            completion_places_R_T=places[1],
            prompt_of_R=of_R,
            seen_R_1_T_K=seen[:, None],
            order_N=real_B.nonzero()[:, 0],
            filled_B=~real_B,
            each=each if together else None,
            predicting_M=before_R_T[own],
        )

    def to(self, device: torch.device) -> "Packing":
        """The same on a device."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {name: value.to(device) for name, value in values.items() if isinstance(value, Tensor)}
        return Packing(**values)

    def attend(self, index: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Causal attention: prompts within themselves, completions to their prompt and to themselves. See `Attend`."""
        del index
        (prompt_q, own_q), (prompt_k, own_k), (prompt_v, own_v) = map(self.lay_out, (queries, keys, values))
        read = [attention(prompt_q, prompt_k, prompt_v, None)]
        if self.completion_places_R_T.shape[1]:
            all_k = torch.cat([self._of_rows(prompt_k), own_k], dim=2)
            all_v = torch.cat([self._of_rows(prompt_v), own_v], dim=2)
            read.append(attention(own_q, all_k, all_v, self._mask(queries.dtype)))
        blocks_B = torch.cat([states.transpose(1, 2).flatten(0, 1) for states in read])
        packed: Tensor = _Pack.apply(blocks_B, self)  # type: ignore[no-untyped-call]
        return packed

    def lay_out(self, states_N_heads_d: Tensor) -> tuple[Tensor, Tensor]:
        """The block of prompts (U, heads, L, d) and the block of completions (R, heads, T, d)."""
        blocks_B: Tensor = _LayOut.apply(states_N_heads_d, self)  # type: ignore[no-untyped-call]
        first = self.prompt_places_U_L.numel()
        blocks = blocks_B[:first], blocks_B[first:]
        places = self.prompt_places_U_L, self.completion_places_R_T
        prompts, completions = (
            block.view(*place.shape, *block.shape[1:]).transpose(1, 2)
            for block, place in zip(blocks, places, strict=True)
        )
        return prompts, completions

    def _mask(self, dtype: torch.dtype) -> Tensor:
        """0 where a completion's token looks, else minus infinity: one for all layers, which keep it for the gradient."""
        if dtype not in self._masks:
            blank = torch.zeros(self.seen_R_1_T_K.shape, dtype=dtype, device=self.seen_R_1_T_K.device)
            self._masks[dtype] = blank.masked_fill_(~self.seen_R_1_T_K, float("-inf"))
        return self._masks[dtype]

    @cached_property
    def _masks(self) -> dict[torch.dtype, Tensor]:
        return {}

    @cached_property
    def places_B(self) -> Tensor:
        """Whose token stands where in the two blocks, one behind the other."""
        return torch.cat([self.prompt_places_U_L.flatten(), self.completion_places_R_T.flatten()])

    def _of_rows(self, states_U_heads_L_d: Tensor) -> Tensor:
        """Each completion's prompt, (R, heads, L, d)."""
        if self.each is None:
            return states_U_heads_L_d[self.prompt_of_R]
        # The same, but its gradient is a plain sum.
        return states_U_heads_L_d[:, None].expand(-1, self.each, -1, -1, -1).flatten(0, 1)


class _LayOut(torch.autograd.Function):
    """Every place occurs once, so that the gradient is read where the token went; torch's own would add up number by number."""

    @staticmethod
    def forward(ctx: FunctionCtx, states_N: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing  # type: ignore[attr-defined]
        return states_N.index_select(0, packing.places_B)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0].index_select(0, ctx.packing.order_N), None  # type: ignore[attr-defined]


class _Pack(torch.autograd.Function):
    """The way back."""

    @staticmethod
    def forward(ctx: FunctionCtx, blocks_B: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing  # type: ignore[attr-defined]
        return blocks_B.index_select(0, packing.order_N)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None]:
        packing: Packing = ctx.packing  # type: ignore[attr-defined]
        blocks_B = gradients[0].index_select(0, packing.places_B)
        return blocks_B.masked_fill_(packing.filled_B[:, None, None], 0), None


def attention(queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    """Of rows (rows, heads, tokens, d), each key head serving several query heads; causal where nothing says what is seen."""
    shared = queries.shape[1] // keys.shape[1]
    if shared > 1 and queries.device.type == "cuda":  # its fast kernels want a key head for each query head
        if queries.shape[2] == 1 and seen is not None:  # heads that share one are queries of one: no key is copied
            together = queries.view(len(queries), -1, shared, queries.shape[-1])
            return functional.scaled_dot_product_attention(together, keys, values, attn_mask=seen).reshape(
                queries.shape
            )
        keys, values = keys.repeat_interleave(shared, dim=1), values.repeat_interleave(shared, dim=1)
    return functional.scaled_dot_product_attention(
        queries, keys, values, attn_mask=seen, is_causal=seen is None, enable_gqa=keys.shape[1] != queries.shape[1]
    )


def _real(lengths: Tensor) -> Tensor:
    """True where a row has a token, (rows, longest)."""
    return torch.arange(int(lengths.max()))[None, :] < lengths[:, None]


def _places(starts: Tensor, lengths: Tensor) -> Tensor:
    """The places of each row's tokens, (rows, longest), 0 where it has none."""
    return (starts[:, None] + torch.arange(int(lengths.max()))).masked_fill(~_real(lengths), 0)
