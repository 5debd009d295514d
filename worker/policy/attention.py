"""Attention over packed tokens, without an array of queries × keys and without copied keys.

A completion's token reads its prompt and what the completion has so far: two attentions that need no mask between them, the
first one of all completions of a prompt at once. Their log-sum-exp makes them one, as it does for the blocks of flash
attention (Dao et al., 2022), and their gradients too: the backward pass of a part, given the output and the log-sum-exp of the
whole, is that part's share of the gradient.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from worker.policy.device import abilities
from worker.policy.packing import Blocks, ByHead, Packing

_SCORES = 2**24
"""Scores that are written out at once."""
_SHORT = 64
"""Tokens of a row and its prompt up to which plain products are faster on a CPU than its flash attention: about half the time for 32,
and as long for 80."""


def attend(queries_N: Tensor, keys_N: Tensor, values_N: Tensor, packing: Packing) -> Tensor:
    """What each token reads: prompts read themselves, completions their prompt and themselves, none what comes later.

    Queries (N, heads, d), keys and values (N, kv heads, d), to (N, heads, d).
    """
    read_N: Tensor = _Attend.apply(queries_N, keys_N, values_N, packing)  # type: ignore[no-untyped-call]
    return read_N


def attend_one(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """What one token of each row reads: queries (rows, heads, d), keys and values (rows, kv heads, K, d), mask (rows, 1, 1, K)."""
    if queries.device.type == "cpu":  # up to twice as fast there as the other way
        one = functional.scaled_dot_product_attention(
            queries[:, :, None], keys, values, attn_mask=mask, enable_gqa=keys.shape[1] != queries.shape[1]
        )
        return one[:, :, 0]
    # Heads that share a key head are queries of one, so that no key is copied.
    together = queries.view(len(queries), keys.shape[1], -1, queries.shape[-1])
    return functional.scaled_dot_product_attention(together, keys, values, attn_mask=mask).flatten(1, 2)


class States(NamedTuple):
    """Queries with their heads, keys and values with theirs, which may be fewer: each serves as many heads."""

    q: Tensor
    k: Tensor
    v: Tensor


class Read(NamedTuple):
    """What queries read."""

    states: Tensor  # like the queries
    sums: Tensor  # the log-sum-exp of each query's scores, in float32


class Backend(Protocol):
    """A way to compute `attend` and its gradient."""

    def read(self, states_N: States, packing: Packing) -> Read:
        """What was read, (N, heads, d); the sums in a shape of its own."""

    def gradients(self, gradient_N: Tensor, states_N: States, read_N: Read, packing: Packing) -> States:
        """Of queries, keys and values."""


class _Attend(torch.autograd.Function):
    """Keeps packed tokens, and of each head one number a token."""

    @staticmethod
    def forward(ctx: FunctionCtx, q_N: Tensor, k_N: Tensor, v_N: Tensor, packing: Packing) -> Tensor:
        if not q_N.dtype == k_N.dtype == v_N.dtype:
            raise TypeError(
                f"queries, keys and values are of one precision, not {q_N.dtype}, {k_N.dtype} and {v_N.dtype}"
            )
        backend = backend_for(q_N, packing)
        read_N = backend.read(States(q_N, k_N, v_N), packing)
        ctx.save_for_backward(q_N, k_N, v_N, *read_N)
        ctx.backend, ctx.packing = backend, packing  # type: ignore[attr-defined]
        return read_N.states

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q_N, k_N, v_N, *read_N = ctx.saved_tensors  # type: ignore[attr-defined]
        states_N = States(q_N, k_N, v_N)
        return *ctx.backend.gradients(gradients[0], states_N, Read(*read_N), ctx.packing), None  # type: ignore[attr-defined]


def merge(one: Read, other: Read) -> Read:
    """Of two parts of the keys: states (…, heads, d), sums (…, heads)."""
    sums = torch.logaddexp(one.sums, other.sums)
    states = one.states * (one.sums - sums).exp()[..., None] + other.states * (other.sums - sums).exp()[..., None]
    return Read(states.to(one.states.dtype), sums)


class Varlen:
    """By flash attention's kernels for rows of any length, which take packed tokens as they are: on a GPU, in half precision.

    Sums are (heads, N).
    """

    def read(self, states_N: States, packing: Packing) -> Read:
        """See `Backend`."""
        rows = packing.varlen
        read_N, first = self._read(states_N, *rows.each, causal=True), rows.prompt_tokens
        if first == len(read_N.states):
            return read_N
        prompt = self._read(_to_prompts(states_N, first), *rows.groups, causal=False)
        own = Read(read_N.states[first:], read_N.sums[:, first:].t())
        completions = merge(own, Read(prompt.states, prompt.sums.t()))
        return Read(
            torch.cat([read_N.states[:first], completions.states]),
            torch.cat([read_N.sums[:, :first], completions.sums.t()], dim=1),
        )

    def gradients(self, gradient_N: Tensor, states_N: States, read_N: Read, packing: Packing) -> States:
        """See `Backend`."""
        rows = packing.varlen
        of_all, first = self._gradients(gradient_N, states_N, read_N, *rows.each, causal=True), rows.prompt_tokens
        if first < len(gradient_N):
            completions = Read(read_N.states[first:], read_N.sums[:, first:])
            to_prompts = _to_prompts(states_N, first)
            more = self._gradients(gradient_N[first:], to_prompts, completions, *rows.groups, causal=False)
            of_all.q[first:] += more.q
            of_all.k[:first] += more.k
            of_all.v[:first] += more.v
        return of_all

    def _read(self, states: States, bounds: tuple[Tensor, Tensor], longest: tuple[int, int], *, causal: bool) -> Read:
        return Read(*torch.ops.aten._flash_attention_forward(*states, *bounds, *longest, 0.0, causal, False)[:2])

    def _gradients(
        self,
        gradient: Tensor,
        states: States,
        read: Read,
        bounds: tuple[Tensor, Tensor],
        longest: tuple[int, int],
        *,
        causal: bool,
    ) -> States:
        # Of a dropout that there is not: the state of its random numbers.
        random, unused = torch.zeros(2, dtype=torch.uint64, device=gradient.device), gradient.new_empty(0)
        known = gradient.contiguous(), *states, read.states, read.sums.contiguous()
        return States(*torch.ops.aten._flash_attention_backward(*known, *bounds, *longest, 0.0, causal, random, unused))


def _to_prompts(states_N: States, first: int) -> States:
    """The completions' queries, and the prompts' keys and values."""
    return States(states_N.q[first:], states_N.k[:first], states_N.v[:first])


class Part(NamedTuple):
    """C chunks of E rows, T tokens wide, whose tokens read their own row and the L tokens of their chunk's prompt."""

    q: Tensor  # (C, kv heads, E, heads of each, T, d)
    k: Tensor  # (C, kv heads, E, T, d)
    v: Tensor
    prompt_k: Tensor  # (C, kv heads, L, d); L is 0 where the rows are prompts
    prompt_v: Tensor
    mask: Tensor | None = None  # 0 or minus infinity for each key of the prompt, (C, 1, 1, L); None where all are seen


class Kernel(Protocol):
    """Attention of rows of equal length."""

    def read(self, part: Part) -> Read:
        """In the shape of the queries, and perhaps more precise; the sums flat, or empty if the gradient needs none."""

    def gradients(self, gradient: Tensor, part: Part, read: Read) -> Part:
        """Of queries, keys and values."""


class Padded:
    """By a kernel for rows of equal length. Tokens are laid out for it, and only for as long as it runs.

    Sums are the kernel's, those of the prompts first.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def read(self, states_N: States, packing: Packing) -> Read:
        """See `Backend`."""
        read = [self._kernel.read(part) for part in _parts(states_N, packing.blocks)]
        of_queries = packing.blocks.by_head(*_heads(states_N))
        return Read(
            _packed([one.states for one in read], of_queries, states_N.q), torch.cat([one.sums for one in read])
        )

    def gradients(self, gradient_N: Tensor, states_N: States, read_N: Read, packing: Packing) -> States:
        """See `Backend`."""
        blocks, (key_heads, each) = packing.blocks, _heads(states_N)
        of_queries, of_keys = blocks.by_head(key_heads, each), blocks.by_head(key_heads)
        gradient_B = _laid_out(gradient_N, of_queries).masked_fill_(of_queries.blank_B[:, None], 0)
        read_B, found, first = _laid_out(read_N.states, of_queries), list[Part](), 0
        for part in _parts(states_N, blocks):
            rows = slice(first, first := first + part.q.shape[:-1].numel())
            read = Read(read_B[rows].view_as(part.q), read_N.sums[rows])
            found.append(self._kernel.gradients(gradient_B[rows].view_as(part.q), part, read))
        for of_completions in found[1:]:
            _add_chunks(found[0].k[:, :, 0], of_completions.prompt_k, blocks)
            _add_chunks(found[0].v[:, :, 0], of_completions.prompt_v, blocks)
        return States(
            _packed([part.q for part in found], of_queries, states_N.q),
            _packed([part.k for part in found], of_keys, states_N.k),
            _packed([part.v for part in found], of_keys, states_N.v),
        )


def _heads(states_N: States) -> tuple[int, int]:
    """Key heads, and the heads that each serves."""
    return states_N.k.shape[1], states_N.q.shape[1] // states_N.k.shape[1]


def _parts(states_N: States, blocks: Blocks) -> list[Part]:
    """The prompts; and the completions, where one has more than a token."""
    key_heads, each = _heads(states_N)
    of_queries, of_keys = blocks.by_head(key_heads, each), blocks.by_head(key_heads)
    q_B, k_B, v_B = _laid_out(states_N.q, of_queries), _laid_out(states_N.k, of_keys), _laid_out(states_N.v, of_keys)
    first, width, cut = 0, states_N.q.shape[-1], list[tuple[Tensor, Tensor, Tensor]]()
    for rows in (blocks.prompts, blocks.completions):
        shape = rows.chunks, key_heads, rows.each, rows.width
        at = slice(first, first := first + math.prod(shape))
        q = q_B[at.start * each : at.stop * each].view(*shape[:3], each, rows.width, width)
        cut.append((q, k_B[at].view(*shape, width), v_B[at].view(*shape, width)))
    (q, k, v), completions = cut
    prompts = Part(q, k, v, k[:, :, 0, :0], v[:, :, 0, :0])
    if not blocks.completions.width:
        return [prompts]
    of_C, mask = (slice(None) if blocks.prompt_of_C is None else blocks.prompt_of_C), None
    if blocks.unseen_C_L is not None:
        mask = torch.zeros(blocks.unseen_C_L.shape, dtype=q.dtype, device=q.device)
        mask = mask.masked_fill_(blocks.unseen_C_L, float("-inf"))[:, None, None]
    return [prompts, Part(*completions, k[of_C, :, 0], v[of_C, :, 0], mask)]


def _laid_out(states_N: Tensor, at: ByHead) -> Tensor:
    """(N, heads, d) to (B, d)."""
    return states_N.reshape(-1, states_N.shape[-1]).index_select(0, at.places_B)


def _packed(blocks: Sequence[Tensor], at: ByHead, like_N: Tensor) -> Tensor:
    """The way back."""
    states_B = torch.cat([block.flatten(0, -2) for block in blocks])
    return states_B.index_select(0, at.order_N).view(like_N.shape).to(like_N.dtype)


def _add_chunks(to_U: Tensor, more_C: Tensor, blocks: Blocks) -> None:
    """What chunks give to the prompts that they read."""
    if blocks.prompt_of_C is None:
        to_U += more_C
    else:
        to_U.index_add_(0, blocks.prompt_of_C, more_C)


class Flash:
    """Torch's flash attention for CPUs: the faster way for long rows."""

    def read(self, part: Part) -> Read:
        """See `Kernel`."""
        read = self._read(_own(part), causal=True)
        if part.prompt_k.shape[2]:
            read = merge(read, self._read(_to_prompt(part), part.mask))
        return Read(read.states.view_as(part.q), read.sums)

    def gradients(self, gradient: Tensor, part: Part, read: Read) -> Part:
        """See `Kernel`."""
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
        """See `Kernel`."""
        precise = _precise(part)
        with torch.autocast(part.q.device.type, enabled=False):
            read = [_mix(_shares(precise, columns), precise.v, precise.prompt_v) for columns in _columns(part)]
        return Read(torch.cat(read, dim=-2), part.q.new_empty(0))

    def gradients(self, gradient: Tensor, part: Part, read: Read) -> Part:
        """See `Kernel`."""
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


def backend_for(queries_N: Tensor, packing: Packing) -> Backend:
    """The fastest way on the device of these queries, in their precision, for rows of these lengths."""
    device, width = queries_N.device, queries_N.shape[-1]
    if device.type == "cpu":
        return Padded(Plain() if packing.longest_row <= _SHORT else Flash())
    fits = queries_N.dtype in (torch.bfloat16, torch.float16) and width % 8 == 0 and width <= 256
    recent = device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)
    return Varlen() if abilities(device).varlen and fits and recent else Padded(Plain())
