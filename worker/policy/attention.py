"""Attention over packed tokens, without an array of queries × keys and without copied keys.

A completion's token reads its prompt and what the completion has so far: two attentions that need no mask between them, the
first one of all completions of a prompt at once. Their log-sum-exp makes them one, as it does for the blocks of flash
attention (Dao et al., 2022), and their gradients too: the backward pass of a part, given the output and the log-sum-exp of the
whole, is that part's share of the gradient.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from worker.policy.device import abilities
from worker.policy.packing import Blocks, Packing

_SCORES = 2**24
"""Scores that are written out at once."""


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
        backend = backend_for(q_N)
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


class Padded:
    """By a kernel for rows of equal length. Tokens are laid out for it, and only for as long as it runs.

    Sums are those of the blocks' tokens, (B, heads).
    """

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel

    def read(self, states_N: States, packing: Packing) -> Read:
        """See `Backend`."""
        at = packing.blocks
        states_B = States(*(each.index_select(0, at.places_B) for each in states_N))
        prompts, *of_completions = (self._read(states_B, part) for part in _parts(at, states_B.q.dtype))
        parts_B = [prompts, merge(*of_completions)] if of_completions else [prompts]
        read, sums = (torch.cat(parts) for parts in zip(*parts_B, strict=True))
        return Read(read.index_select(0, at.order_N), sums)

    def gradients(self, gradient_N: Tensor, states_N: States, read_N: Read, packing: Packing) -> States:
        """See `Backend`."""
        at = packing.blocks
        gradient_B, read_B, *states = (
            each.index_select(0, at.places_B) for each in (gradient_N, read_N.states, *states_N)
        )
        gradient_B.masked_fill_(at.blank_B[:, None, None], 0)
        states_B = States(*states)
        to_B = States(*map(torch.zeros_like, states_B))
        for part in _parts(at, gradient_B.dtype):
            found = self._gradients(gradient_B, states_B, Read(read_B, read_N.sums), part)
            to_B.q[part.queries] += found.q
            to_B.k[part.keys] += found.k
            to_B.v[part.keys] += found.v
        return States(*(each.index_select(0, at.order_N) for each in to_B))

    def _read(self, states_B: States, part: "_Part") -> Read:
        read = self._kernel.read(part.of(states_B), part.mask, causal=part.causal)
        return Read(*map(_in_line, read))

    def _gradients(self, gradient_B: Tensor, states_B: States, read_B: Read, part: "_Part") -> States:
        gradient, *read = (_in_rows(each[part.queries], part.rows) for each in (gradient_B, *read_B))
        found = self._kernel.gradients(gradient, part.of(states_B), Read(*read), part.mask, causal=part.causal)
        return States(*map(_in_line, found))


class _Part(NamedTuple):
    """Which of the blocks' tokens read which, in how many rows."""

    queries: slice
    keys: slice
    rows: int
    causal: bool
    mask: Tensor | None = None

    def of(self, states_B: States) -> States:
        """The rows."""
        places = self.queries, self.keys, self.keys
        return States(*(_in_rows(each[place], self.rows) for each, place in zip(states_B, places, strict=True)))


def _parts(at: Blocks, dtype: torch.dtype) -> list[_Part]:
    """Prompts read themselves; completions, where one has more than a token, themselves and their prompts."""
    first = at.prompt_places
    prompts, completions = slice(first), slice(first, None)
    parts = [_Part(prompts, prompts, at.prompts, causal=True)]
    if first < len(at.places_B):
        mask = None
        if at.unseen_U_L is not None:
            mask = torch.zeros(at.unseen_U_L.shape, dtype=dtype, device=at.unseen_U_L.device)
            mask = mask.masked_fill_(at.unseen_U_L, float("-inf"))[:, None, None]
        parts.append(_Part(completions, completions, at.prompts * at.most, causal=True))
        parts.append(_Part(completions, prompts, at.prompts, causal=False, mask=mask))
    return parts


def _in_rows(each_B: Tensor, rows: int) -> Tensor:
    """(B, heads, …) to (rows, heads, B / rows, …)."""
    return each_B.view(rows, -1, *each_B.shape[1:]).transpose(1, 2)


def _in_line(each: Tensor) -> Tensor:
    """The way back."""
    return each.transpose(1, 2).flatten(0, 1)


class Kernel(Protocol):
    """Attention of rows side by side: queries (rows, heads, T, d), keys and values (rows, kv heads, K, d)."""

    def read(self, states: States, mask: Tensor | None, *, causal: bool) -> Read:
        """Sums are (rows, heads, T). The mask is 0 or minus infinity for each key, (rows, 1, 1, K); None where all are seen,
        or, if `causal`, all until the query's own."""

    def gradients(self, gradient: Tensor, states: States, read: Read, mask: Tensor | None, *, causal: bool) -> States:
        """Of queries, keys and values. What was read may be of more keys than these."""


class OnCpu:
    """Torch's flash attention for CPUs."""

    def read(self, states: States, mask: Tensor | None, *, causal: bool) -> Read:
        """See `Kernel`."""
        return Read(*torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*states, 0.0, causal, attn_mask=mask))

    def gradients(self, gradient: Tensor, states: States, read: Read, mask: Tensor | None, *, causal: bool) -> States:
        """See `Kernel`."""
        backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        return States(*backward(gradient, *states, *read, 0.0, causal, attn_mask=mask))


class Plain:
    """Plain products, some queries at a time so that their scores stay small: for devices and precisions without another kernel."""

    def read(self, states: States, mask: Tensor | None, *, causal: bool) -> Read:
        """See `Kernel`."""
        parts = list[tuple[Tensor, Tensor]]()
        for queries in self._parts(states):
            scores = self._scores(states, queries, mask, causal=causal)
            sums = scores.logsumexp(-1)
            shares = (scores - sums[..., None]).exp().to(states.v.dtype)
            parts.append((_by_head(_by_key(shares) @ states.v, shares), sums))
        read, all_sums = (torch.cat(each, dim=3).flatten(1, 2) for each in zip(*parts, strict=True))
        return Read(read, all_sums)

    def gradients(self, gradient: Tensor, states: States, read: Read, mask: Tensor | None, *, causal: bool) -> States:
        """See `Kernel`."""
        to_q, to_k, to_v = map(torch.zeros_like, states)
        for queries in self._parts(states):
            q, to_read, found, sums = (
                _grouped(each, states.k)[:, :, :, queries] for each in (states.q, gradient, *read)
            )
            shares = (self._scores(states, queries, mask, causal=causal) - sums[..., None]).exp()
            inner = _precise(to_read * found).sum(-1, keepdim=True)
            to_shares = _precise(_by_head(_by_key(to_read) @ states.v.mT, shares))
            to_scores = (shares * (to_shares - inner) * q.shape[-1] ** -0.5).to(q.dtype)
            to_q[:, :, queries] = _by_head(_by_key(to_scores) @ states.k, shares).flatten(1, 2)
            to_k += _by_key(to_scores).mT @ _by_key(q)
            to_v += _by_key(shares.to(q.dtype)).mT @ _by_key(to_read)
        return States(to_q, to_k, to_v)

    def _parts(self, states: States) -> list[slice]:
        """Of the queries."""
        rows, heads, count, _ = states.q.shape
        most = max(1, _SCORES // (rows * heads * states.k.shape[2]))
        return [slice(first, min(first + most, count)) for first in range(0, count, most)]

    def _scores(self, states: States, queries: slice, mask: Tensor | None, *, causal: bool) -> Tensor:
        """(rows, kv heads, heads of each, T, K)."""
        q = _grouped(states.q, states.k)[:, :, :, queries]
        scores: Tensor = _by_head(_precise(_by_key(q) @ states.k.mT), q) * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores + mask[:, None]
        if causal:
            later = torch.ones_like(scores[0, 0, 0], dtype=torch.bool).triu(1 + queries.start)
            scores = scores.masked_fill(later, float("-inf"))
        return scores


def _grouped(each: Tensor, keys: Tensor) -> Tensor:
    """(rows, heads, …) to (rows, kv heads, heads of each, …)."""
    return each.view(len(each), keys.shape[1], -1, *each.shape[2:])


def _by_key(each: Tensor) -> Tensor:
    """(rows, kv heads, heads of each, T, …) to (rows, kv heads, heads of each × T, …): all that one key head serves."""
    return each.flatten(2, 3)


def _by_head(each: Tensor, like: Tensor) -> Tensor:
    """The way back."""
    return each.view(*each.shape[:2], *like.shape[2:4], *each.shape[3:])


def _precise(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def backend_for(queries_N: Tensor) -> Backend:
    """The fastest way on the device of these queries, in their precision."""
    device, width = queries_N.device, queries_N.shape[-1]
    fits = queries_N.dtype in (torch.bfloat16, torch.float16) and width % 8 == 0 and width <= 256
    if (
        abilities(device).varlen
        and fits
        and (device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0))
    ):
        return Varlen()
    return Padded(OnCpu() if device.type == "cpu" else Plain())
