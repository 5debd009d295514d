"""Packed batches: every token once, in one row without padding; each prompt stands there once for all its completions.

The linear layers, nearly all of the work, see N real tokens. Only inside the attention are rows laid out side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Packing:
    """N tokens: those of the U prompts, then those of the R completions, each without its last one, which predicts nothing.

    Places are numbers from 0 to N − 1. Where a row is shorter than the longest, the place 0 fills it up; no query of a real
    token looks there.
    """

    ids_N: Tensor
    positions_N: Tensor
    prompt_places_U_L: Tensor
    completion_places_R_T: Tensor  # T may be 0: completions of a single token
    prompt_of_R: Tensor
    seen_R_1_T_K: Tensor  # True where a completion's token looks; K: its prompt's L places, then its own T
    order_N: Tensor  # where in the two blocks of rows, one behind the other, each place stands
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
        order_N = torch.cat([mask.flatten() for mask in real]).nonzero()[:, 0]
        own_T_T = torch.ones(real[1].shape[1], real[1].shape[1], dtype=torch.bool).tril()
        seen = torch.cat(
            [real[0][of_R][:, None].expand(-1, len(own_T_T), -1), own_T_T.expand(len(of_R), -1, -1)], dim=2
        )
        last_of_prompt_R = (starts + lengths - 1)[of_R]
        predicting = [
            torch.cat([last_of_prompt_R[row : row + 1], places[1][row, : lengths[prompts + row]]])
            for row in range(len(of_R))
        ]
        return Packing(
            ids_N=torch.tensor([token for row in rows for token in row]),
            positions_N=torch.arange(count) - torch.repeat_interleave(starts - begin, lengths),
            prompt_places_U_L=places[0],
            completion_places_R_T=places[1],
            prompt_of_R=of_R,
            seen_R_1_T_K=seen[:, None],
            order_N=order_N,
            predicting_M=torch.cat(predicting),
        )

    def to(self, device: torch.device) -> "Packing":
        """The same on a device."""
        return Packing(**{name: value.to(device) for name, value in vars(self).items()})

    def by_prompt(self, states_N_heads_d: Tensor) -> Tensor:
        """The prompts' tokens side by side, (U, heads, L, d)."""
        return _rows(states_N_heads_d, self.prompt_places_U_L)

    def attend(self, index: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Causal attention: prompts within themselves, completions to their prompt and to themselves. See `Attend`."""
        del index
        prompt_q, prompt_k, prompt_v = (self.by_prompt(states) for states in (queries, keys, values))
        read = [attention(prompt_q, prompt_k, prompt_v, None)]
        if self.completion_places_R_T.shape[1]:
            own_q, own_k, own_v = (_rows(states, self.completion_places_R_T) for states in (queries, keys, values))
            all_k = torch.cat([prompt_k[self.prompt_of_R], own_k], dim=2)
            all_v = torch.cat([prompt_v[self.prompt_of_R], own_v], dim=2)
            read.append(attention(own_q, all_k, all_v, self.seen_R_1_T_K))
        flat = torch.cat([states.transpose(1, 2).flatten(0, 1) for states in read])
        return flat.index_select(0, self.order_N)


def attention(queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
    """Of rows (rows, heads, tokens, d), each key head serving several query heads; causal where nothing says what is seen."""
    if queries.device.type == "cuda" and keys.shape[1] != queries.shape[1]:  # its fast kernels want a key head for each
        shared = queries.shape[1] // keys.shape[1]
        keys, values = keys.repeat_interleave(shared, dim=1), values.repeat_interleave(shared, dim=1)
    return functional.scaled_dot_product_attention(
        queries, keys, values, attn_mask=seen, is_causal=seen is None, enable_gqa=keys.shape[1] != queries.shape[1]
    )


def _rows(states_N_heads_d: Tensor, places: Tensor) -> Tensor:
    """(rows, heads, tokens, d)."""
    rows, tokens = places.shape
    picked = states_N_heads_d.index_select(0, places.flatten())
    return picked.view(rows, tokens, *states_N_heads_d.shape[1:]).transpose(1, 2)


def _real(lengths: Tensor) -> Tensor:
    """True where a row has a token, (rows, longest)."""
    return torch.arange(int(lengths.max()))[None, :] < lengths[:, None]


def _places(starts: Tensor, lengths: Tensor) -> Tensor:
    """The places of each row's tokens, (rows, longest), 0 where it has none."""
    return (starts[:, None] + torch.arange(int(lengths.max()))).masked_fill(~_real(lengths), 0)
