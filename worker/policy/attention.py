"""Attention over packed tokens: no array of queries × keys is kept, and no key is copied for each head that it serves.

A completion's token reads its prompt and what the completion has so far. On flash attention's kernels these are two attentions, the
first one of all completions of a prompt at once. Their log-sum-exp makes them one, as it does for the blocks of flash
attention (Dao et al., 2022), and their gradients too: the backward pass of a part, given the output and the log-sum-exp of the
whole, is that part's share of the gradient. Plain products take one softmax over both.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from worker.policy.device import abilities
from worker.policy.kernels import Flash, Kernel, Part, Plain, Read, States, merge
from worker.policy.packing import Blocks, ByHead, Packing

_SHORT = 64
"""Tokens of a row and its prompt up to which plain products are faster on a CPU than its flash attention: about half the time for 32,
and as long for 80."""


def attend(queries_N: Tensor, keys_N: Tensor, values_N: Tensor, packing: Packing) -> Tensor:
    """What each token reads: prompts read themselves, completions their prompt and themselves, none what comes later.

    Queries (N, heads, d), keys and values (N, kv heads, d), to (N, heads, d). Raises TypeError if their precision differs.
    """
    read_N: Tensor = _Attend.apply(queries_N, keys_N, values_N, packing)  # type: ignore[no-untyped-call]
    return read_N


def attend_one(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """What one token of each row reads: queries (rows, heads, d), keys and values (rows, kv heads, K, d), mask (rows, 1, 1, K)."""
    if queries.device.type == "cpu":  # one query for each head is up to twice as fast there
        one = functional.scaled_dot_product_attention(
            queries[:, :, None], keys, values, attn_mask=mask, enable_gqa=keys.shape[1] != queries.shape[1]
        )
        return one[:, :, 0]
    # Heads that share a key head are queries of one, so that no key is copied.
    together = queries.view(len(queries), keys.shape[1], -1, queries.shape[-1])
    return functional.scaled_dot_product_attention(together, keys, values, attn_mask=mask).flatten(1, 2)


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


class Varlen:
    """By flash attention's kernels for rows of any length, which take packed tokens as they are: on a GPU, in half precision.

    Sums are (heads, N).
    """

    def read(self, states_N: States, packing: Packing) -> Read:
        """What was read, (N, heads, d), in the queries' precision, and the sums."""
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
        """Of queries, keys and values, each like its own; `gradient_N` is like the queries."""
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
        # The random state that dropout would need; there is no dropout.
        random, unused = torch.zeros(2, dtype=torch.uint64, device=gradient.device), gradient.new_empty(0)
        known = gradient.contiguous(), *states, read.states, read.sums.contiguous()
        return States(*torch.ops.aten._flash_attention_backward(*known, *bounds, *longest, 0.0, causal, random, unused))


def _to_prompts(states_N: States, first: int) -> States:
    """The completions' queries, and the prompts' keys and values."""
    return States(states_N.q[first:], states_N.k[:first], states_N.v[:first])


class Padded:
    """By a kernel for rows of equal length. Tokens are laid out for it, and only for as long as it runs.

    Sums are the kernel's, those of the prompts first.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def read(self, states_N: States, packing: Packing) -> Read:
        """What was read, like `Varlen`."""
        read = [self._kernel.read(part) for part in _parts(states_N, packing.blocks)]
        of_queries = packing.blocks.by_head(*_heads(states_N))
        return Read(
            _packed([one.states for one in read], of_queries, states_N.q), torch.cat([one.sums for one in read])
        )

    def gradients(self, gradient_N: Tensor, states_N: States, read_N: Read, packing: Packing) -> States:
        """As those of `Varlen`."""
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


Backend = Padded | Varlen
"""A way to compute `attend` and its gradient."""


def backend_for(queries_N: Tensor, packing: Packing) -> Backend:
    """The fastest way on the device of these queries, in their precision, for rows of these lengths."""
    device, width = queries_N.device, queries_N.shape[-1]
    if device.type == "cpu":
        return Padded(Plain() if packing.longest_row <= _SHORT else Flash())
    fits = queries_N.dtype in (torch.bfloat16, torch.float16) and width % 8 == 0 and width <= 256
    recent = device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)
    return Varlen() if abilities(device).varlen and fits and recent else Padded(Plain())
