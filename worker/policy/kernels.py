"""Attention of rows of equal length, side by side, with their prompts: forward and gradients."""

from typing import NamedTuple

import torch
from torch import Tensor

_SCORES = 2**24
"""Scores that are written out at once."""


class States(NamedTuple):
    """Queries (…, heads, …, d), keys and values (…, kv heads, …, d): a key head serves heads / kv heads that follow each other."""

    q: Tensor
    k: Tensor
    v: Tensor


class Read(NamedTuple):
    """What queries read."""

    states: Tensor  # like the queries
    sums: Tensor  # the log-sum-exp of each query's scores, in float32 at least; empty if the gradient needs none


def merge(one: Read, other: Read) -> Read:
    """Of two parts of the keys: states (…, heads, d), sums (…, heads)."""
    sums = torch.logaddexp(one.sums, other.sums)
    states = one.states * (one.sums - sums).exp()[..., None] + other.states * (other.sums - sums).exp()[..., None]
    return Read(states.to(one.states.dtype), sums)


class Part(NamedTuple):
    """C chunks of E rows, T tokens wide, whose tokens read their own row up to themselves and the L tokens of their chunk's prompt."""

    q: Tensor  # (C, kv heads, E, heads of each, T, d)
    k: Tensor  # (C, kv heads, E, T, d)
    v: Tensor  # like k
    prompt_k: Tensor  # (C, kv heads, L, d); L is 0 where the rows are prompts
    prompt_v: Tensor  # like prompt_k
    mask: Tensor | None = None  # 0 or minus infinity for each key of the prompt, (C, 1, 1, L); None if all are seen


class Flash:
    """Torch's flash attention for CPUs: the faster way for long rows."""

    def read(self, part: Part) -> Read:
        """In the shape of the queries, and perhaps more precise; the sums flat."""
        read = self._read(_own(part), causal=True)
        if part.prompt_k.shape[2]:
            read = merge(read, self._read(_to_prompt(part), part.mask))
        return Read(read.states.view_as(part.q), read.sums)

    def gradients(self, gradient: Tensor, part: Part, read: Read) -> Part:
        """Of queries, keys and values; `gradient` and `read.states` are like the queries."""
        own = self._gradients(gradient, _own(part), read, causal=True)
        to_q, to_k, to_v = (to.reshape(each.shape) for to, each in zip(own, part[:3], strict=True))
        if not part.prompt_k.shape[2]:
            return Part(to_q, to_k, to_v, part.prompt_k, part.prompt_v)
        more = self._gradients(gradient, _to_prompt(part), read, part.mask)
        return Part(to_q + more.q.reshape(to_q.shape), to_k, to_v, more.k, more.v)

    def _read(self, states: States, mask: Tensor | None = None, *, causal: bool = False) -> Read:
        """States (B, d) and sums (B,)."""
        forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        read, sums = forward(*states, 0.0, causal, attn_mask=mask)
        return Read(read.reshape(-1, read.shape[-1]), sums.reshape(-1))

    def _gradients(
        self, gradient: Tensor, states: States, read: Read, mask: Tensor | None = None, *, causal: bool = False
    ) -> States:
        shape = states.q.shape
        known = gradient.view(shape), *states, read.states.view(shape), read.sums.view(shape[:-1])
        backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        return States(*backward(*known, 0.0, causal, attn_mask=mask))


def _own(part: Part) -> States:
    """Each row by itself: queries (rows, heads of each, T, d), keys and values (rows, 1, T, d)."""
    return States(part.q.flatten(0, 2), part.k.flatten(0, 2)[:, None], part.v.flatten(0, 2)[:, None])


def _to_prompt(part: Part) -> States:
    """All of a chunk's queries for one key head: (C, kv heads, E × heads of each × T, d)."""
    return States(part.q.flatten(2, 4), part.prompt_k, part.prompt_v)


class Plain:
    """Plain products in float32, of some queries at a time so that their scores stay small: for devices and precisions without
    another kernel, and for short rows on a CPU. The gradient computes the scores again."""

    def read(self, part: Part) -> Read:
        """In the shape of the queries, in float32 at least; no sums."""
        precise = _precise(part)
        with torch.autocast(part.q.device.type, enabled=False):
            read = [_mix(_shares(precise, columns), precise.v, precise.prompt_v) for columns in _columns(part)]
        return Read(torch.cat(read, dim=-2), part.q.new_empty(0))

    def gradients(self, gradient: Tensor, part: Part, read: Read) -> Part:
        """As those of `Flash`."""
        precise = _precise(part)
        to = Part(torch.empty_like(precise.q), *map(torch.zeros_like, precise[1:5]))
        for columns in _columns(part):
            q, to_read, had = (each[..., columns, :].to(precise.q.dtype) for each in (part.q, gradient, read.states))
            shares = _shares(precise, columns)
            inner = (to_read * had).sum(-1, keepdim=True)
            to_scores = _scores(to_read, precise.v, precise.prompt_v, columns).sub_(inner).mul_(shares)
            to_scores *= q.shape[-1] ** -0.5
            to.q[..., columns, :] = _mix(to_scores, precise.k, precise.prompt_k)
            _collect(to.k, to.prompt_k, to_scores, q)
            _collect(to.v, to.prompt_v, shares, to_read)
        return to


Kernel = Flash | Plain
"""Attention of rows of equal length."""


def _precise(part: Part) -> Part:
    dtype = torch.promote_types(part.q.dtype, torch.float32)
    return Part(*(each.to(dtype) for each in part[:5]))._replace(mask=part.mask)


def _columns(part: Part) -> list[slice]:
    """Of the queries."""
    count, scores = part.q.shape[-2], part.q.shape[:-2].numel() * (part.q.shape[-2] + part.prompt_k.shape[-2])
    most = max(1, _SCORES // scores)
    return [slice(first, min(first + most, count)) for first in range(0, count, most)]


def _shares(part: Part, columns: slice) -> Tensor:
    """How much these queries read of the prompt's and of their row's keys, (C, kv heads, E, heads of each, t, L + columns.stop)."""
    scores = _scores(part.q[..., columns, :] * part.q.shape[-1] ** -0.5, part.k, part.prompt_k, columns)
    of_prompt, own = scores.tensor_split((part.prompt_k.shape[-2],), dim=-1)
    if part.mask is not None:
        of_prompt += part.mask[:, :, :, None, None]
    later = torch.ones(own.shape[-2:], dtype=torch.bool, device=own.device).triu(1 + columns.start)
    own.masked_fill_(later, float("-inf"))
    return scores.softmax(-1)


def _scores(x: Tensor, own: Tensor, prompt: Tensor, columns: slice) -> Tensor:
    """Products of x (C, kv heads, E, heads of each, t, d) with the prompt's rows and its own row's until the last column."""
    with_prompt = (x.flatten(2, 4) @ prompt.mT).view(*x.shape[:-1], -1)
    with_own = (x.flatten(3, 4) @ own[..., : columns.stop, :].mT).view(*x.shape[:-1], -1)
    return torch.cat([with_prompt, with_own], dim=-1)


def _mix(shares: Tensor, own: Tensor, prompt: Tensor) -> Tensor:
    """Sums of the prompt's and the own row's states by their shares: the way back from `_scores`."""
    shape, first = shares.shape[:-1], prompt.shape[-2]
    of_own = shares[..., first:].flatten(3, 4) @ own[..., : shares.shape[-1] - first, :]
    return of_own.view(*shape, -1) + (shares[..., :first].flatten(2, 4) @ prompt).view(*shape, -1)


def _collect(to_own: Tensor, to_prompt: Tensor, shares: Tensor, x: Tensor) -> None:
    """Add what `_mix` gives back to the states, where its sums' gradient is x."""
    first = to_prompt.shape[-2]
    to_prompt += shares[..., :first].flatten(2, 4).mT @ x.flatten(2, 4)
    to_own[..., : shares.shape[-1] - first, :] += shares[..., first:].flatten(3, 4).mT @ x.flatten(3, 4)
