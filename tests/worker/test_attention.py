"""Attention over packed tokens, against its definition: each token by itself, in double precision."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from worker.policy import attention
from worker.policy.attention import Backend, OnCpu, Padded, Plain, Read, States, Varlen, attend
from worker.policy.packing import Packing

CPU = torch.device("cpu")
HEADS, KEY_HEADS, WIDTH = 4, 2, 8
# Tokens of the prompts and of the completions, and the prompt of each completion.
CASES = {
    "mixed lengths in any order": ([3, 5, 2], [4, 1, 6, 3, 2, 2], [0, 1, 1, 2, 0, 1]),
    "whole groups of one length": ([4, 4], [3, 3, 3, 3], [0, 0, 1, 1]),
    "single tokens, which nothing computes": ([2, 3], [1, 1], [0, 1]),
    "one row": ([5], [7], [0]),
    "a token in one group, and none in another": ([3, 1], [2, 1, 1], [0, 0, 1]),
}
Case = tuple[list[int], list[int], list[int]]
Bounds = tuple[Tensor, Tensor]


class RowByRow(Varlen):
    """What the kernels for rows of any length do, one row after the other: they themselves need a GPU."""

    def _read(self, states: States, bounds: Bounds, longest: tuple[int, int], *, causal: bool) -> Read:
        read, sums = torch.zeros_like(states.q), torch.full((HEADS, len(states.q)), torch.nan, dtype=torch.float64)
        for readers, keys in _rows(bounds, longest):
            one = Plain().read(_cut(states, readers, keys), None, causal=causal)
            read[readers], sums[:, readers] = one.states[0].transpose(0, 1), one.sums[0]
        return Read(read, sums)

    def _gradients(
        self,
        gradient: Tensor,
        states: States,
        read: Read,
        bounds: Bounds,
        longest: tuple[int, int],
        *,
        causal: bool,
    ) -> States:
        found = States(*map(torch.zeros_like, states))
        for readers, keys in _rows(bounds, longest):
            whole = Read(_row(read.states[readers]), read.sums[None, :, readers])
            cut = _cut(states, readers, keys)
            one = Plain().gradients(_row(gradient[readers]), cut, whole, None, causal=causal)
            for to, part, place in zip(found, one, (readers, keys, keys), strict=True):
                to[place] += part[0].transpose(0, 1)
        return found


def _rows(bounds: Bounds, longest: tuple[int, int]) -> Iterator[tuple[slice, slice]]:
    """The rows that have tokens, as slices of those that read and of what they read."""
    assert all(bound.dtype == torch.int32 for bound in bounds)
    assert longest[0] > 1  # else the kernels expect exactly one token of each row
    assert all(most >= int(bound.diff().max()) for most, bound in zip(longest, bounds, strict=True))
    readers, keys = (list(map(slice, bound.tolist()[:-1], bound.tolist()[1:])) for bound in bounds)
    return ((mine, read) for mine, read in zip(readers, keys, strict=True) if mine.stop > mine.start)


def _row(states_N: Tensor) -> Tensor:
    return states_N.transpose(0, 1)[None]


def _cut(states: States, readers: slice, keys: slice) -> States:
    return States(_row(states.q[readers]), _row(states.k[keys]), _row(states.v[keys]))


def packed(case: Case) -> Packing:
    prompts, completions, of_R = case
    return Packing.of([[1] * length for length in prompts], [[2] * length for length in completions], of_R, CPU)


def states_of(packing: Packing) -> States:
    draw = torch.Generator().manual_seed(0)
    count = len(packing.ids_N)
    heads = (HEADS, KEY_HEADS, KEY_HEADS)
    drawn = (torch.randn(count, each, WIDTH, dtype=torch.float64, generator=draw) for each in heads)
    return States(*(each.requires_grad_() for each in drawn))


def defined(states_N: States, case: Case) -> Tensor:
    """softmax(q k / √d) v of each token over its prompt and what stands before it in its own row."""
    prompts, completions, of_R = case
    in_order = sorted(range(len(completions)), key=lambda row: of_R[row])
    lengths = [*prompts, *(completions[row] - 1 for row in in_order)]
    ends = torch.tensor(lengths).cumsum(0).tolist()
    begins = [end - length for end, length in zip(ends, lengths, strict=True)]
    keys, values = (each.repeat_interleave(HEADS // KEY_HEADS, dim=1) for each in states_N[1:])
    read = []
    for row, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        prompt = of_R[in_order[row - len(prompts)]] if row >= len(prompts) else None
        before = [] if prompt is None else list(range(begins[prompt], ends[prompt]))
        for place in range(begin, end):
            seen = [*before, *range(begin, place + 1)]
            scores = torch.einsum("hd,khd->hk", states_N.q[place], keys[seen]) * WIDTH**-0.5
            read.append(torch.einsum("hk,khd->hd", scores.softmax(-1), values[seen]))
    return torch.stack(read)


@pytest.mark.parametrize("backend", [Padded(OnCpu()), Padded(Plain()), RowByRow()], ids=["cpu", "plain", "varlen"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("scores", [2**24, 100], ids=["at once", "in parts"])
def test_every_token_reads_its_prompt_and_what_stands_before_it(
    case: Case, backend: Backend, scores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "backend_for", lambda queries_N: backend)
    monkeypatch.setattr(attention, "_SCORES", scores)
    packing = packed(case)
    states_N = states_of(packing)
    want, found = defined(states_N, case), attend(*states_N, packing)
    to = torch.randn(want.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    pairs = zip(torch.autograd.grad(found, states_N, to), torch.autograd.grad(want, states_N, to), strict=True)
    for mine, theirs in [(found.detach(), want.detach()), *pairs]:
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-13)


def test_what_the_gradient_keeps_grows_with_the_tokens_alone() -> None:
    def kept(length: int) -> int:
        packing = packed(([64], [length] * 8, [0] * 8))
        sizes = list[int]()
        with torch.autograd.graph.saved_tensors_hooks(lambda one: sizes.append(one.nbytes) or one, lambda one: one):
            attend(*states_of(packing), packing)
        return sum(sizes) + sum(each.nbytes for each in vars(packing.blocks).values() if isinstance(each, Tensor))

    assert kept(801) <= 2 * kept(401)
