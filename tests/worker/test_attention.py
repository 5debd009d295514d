"""Attention over packed tokens, against its definition: each token by itself, in double precision."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from worker.policy import attention, kernels
from worker.policy.attention import Backend, Padded, Varlen, attend
from worker.policy.kernels import Flash, Plain, Read, States
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
    "a prompt without a completion, and one with two": ([3, 2], [3, 2], [0, 0]),
    "seven completions of one prompt": ([3, 2, 4, 1], [3, 2, 4, 2, 3, 5, 2, 2, 3, 4], [1] * 7 + [0, 2, 3]),
}
Case = tuple[list[int], list[int], list[int]]
Bounds = tuple[Tensor, Tensor]


class RowByRow(Varlen):
    """What the kernels for rows of any length do, one row after the other: they themselves need a GPU."""

    def _read(self, states: States, bounds: Bounds, longest: tuple[int, int], *, causal: bool) -> Read:
        read, sums = torch.zeros_like(states.q), torch.full((HEADS, len(states.q)), torch.nan, dtype=torch.float64)
        for readers, keys in _rows(bounds, longest):
            scores = _scores(states, readers, keys, causal=causal)
            read[readers] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), _each_head(states.v[keys]))
            sums[:, readers] = scores.logsumexp(-1)
        return Read(read, sums)

    def _gradients(
        self, gradient: Tensor, states: States, read: Read, bounds: Bounds, longest: tuple[int, int], *, causal: bool
    ) -> States:
        found = States(*map(torch.zeros_like, states))
        for readers, keys in _rows(bounds, longest):
            shares = (_scores(states, readers, keys, causal=causal) - read.sums[:, readers, None]).exp()
            to_read = gradient[readers]
            to_shares = torch.einsum("qhd,khd->hqk", to_read, _each_head(states.v[keys]))
            inner = (to_read * read.states[readers]).sum(-1).t()[..., None]
            to_scores = shares * (to_shares - inner) * WIDTH**-0.5
            found.q[readers] += torch.einsum("hqk,khd->qhd", to_scores, _each_head(states.k[keys]))
            for to, by, given in ((found.k, to_scores, states.q[readers]), (found.v, shares, to_read)):
                to[keys] += torch.einsum("hqk,qhd->khd", by, given).unflatten(1, (KEY_HEADS, -1)).sum(2)
        return found


def _each_head(keys: Tensor) -> Tensor:
    return keys.repeat_interleave(HEADS // KEY_HEADS, dim=1)


def _scores(states: States, readers: slice, keys: slice, *, causal: bool) -> Tensor:
    scores = torch.einsum("qhd,khd->hqk", states.q[readers], _each_head(states.k[keys])) * WIDTH**-0.5
    later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
    return scores.masked_fill(later, float("-inf")) if causal else scores


def _rows(bounds: Bounds, longest: tuple[int, int]) -> Iterator[tuple[slice, slice]]:
    """The rows that have tokens, as slices of those that read and of what they read."""
    assert all(bound.dtype == torch.int32 for bound in bounds)
    assert longest[0] > 1  # else the kernels expect exactly one token of each row
    assert all(most >= int(bound.diff().max()) for most, bound in zip(longest, bounds, strict=True))
    readers, keys = (list(map(slice, bound.tolist()[:-1], bound.tolist()[1:])) for bound in bounds)
    return ((mine, read) for mine, read in zip(readers, keys, strict=True) if mine.stop > mine.start)


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


@pytest.mark.parametrize("backend", [Padded(Flash()), Padded(Plain()), RowByRow()], ids=["flash", "plain", "varlen"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("scores", [2**24, 100], ids=["at once", "in parts"])
def test_every_token_reads_its_prompt_and_what_stands_before_it(
    case: Case, backend: Backend, scores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "backend_for", lambda queries_N, packing: backend)
    monkeypatch.setattr(kernels, "_SCORES", scores)
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
        held = tree_leaves(vars(packing.blocks))
        return sum(sizes) + sum(each.nbytes for each in held if isinstance(each, Tensor))

    assert kept(801) <= 2 * kept(401)


def test_there_are_at_most_twice_as_many_rows_as_prompts_and_completions() -> None:
    blocks = packed(([4] * 8, [5] * 71, [0] * 64 + list(range(1, 8)))).blocks
    chunks, each, _ = blocks.completions
    assert chunks * each < 2 * (71 + 8)


@pytest.mark.parametrize(
    ("prompt", "completion", "kernel"), [(24, 41, Plain), (25, 41, Flash), (1, 65, Flash), (40, 41, Flash)]
)
def test_a_cpu_takes_plain_products_for_rows_of_up_to_64_tokens(
    prompt: int, completion: int, kernel: type[Plain | Flash]
) -> None:
    packing = packed(([prompt], [completion], [0]))  # whose last token is not computed
    backend = attention.backend_for(states_of(packing).q, packing)
    assert isinstance(backend, Padded)
    assert isinstance(backend._kernel, kernel)


def test_plain_products_round_nothing_between_states_and_result() -> None:
    packing = packed(CASES["mixed lengths in any order"])
    half = States(*(each.detach().bfloat16() for each in states_of(packing)))
    whole, plain = States(*(each.float() for each in half)), Padded(Plain())
    to = torch.randn(half.q.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    wanted = plain.read(whole, packing)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = plain.read(half, packing)
        rounded = Read(found.states.float(), wanted.sums)
    pairs = zip(
        plain.gradients(to, half, found, packing), plain.gradients(to.float(), whole, rounded, packing), strict=True
    )
    for one, other in [(found.states, wanted.states), *pairs]:
        assert one.dtype is torch.bfloat16
        assert torch.equal(one, other.bfloat16())
