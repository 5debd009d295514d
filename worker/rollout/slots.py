"""Slots: the rows that are being generated, side by side, each with its keys and values at a fixed place.

Rows 0 to n − 1 are in use. Nothing moves while they are; one that ends gives its slot to a waiting row, or to the last one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from backend.contract.algorithm import Logprobs
from worker.policy.attention import attend, attend_one
from worker.policy.decoder import run_layers
from worker.policy.device import abilities
from worker.policy.fused import SamplingWeights
from worker.policy.packing import Packing
from worker.policy.recording import RecordedSteps
from worker.rollout.choice import invert, truncate
from worker.rollout.draws import uniforms
from worker.rollout.engine import Request


@dataclass(frozen=True)
class Prefilled:
    """U prompts, ready to be continued."""

    keys: Tensor  # (layers, U, key heads, L, d); where a prompt is shorter than L, what follows is never looked at
    values: Tensor
    lengths_U: Tensor
    logits_U_V: Tensor  # of each prompt's next token


def prefill(weights: SamplingWeights, prompts_U: Sequence[Sequence[int]], device: torch.device) -> Prefilled:
    """Pass U prompts through the model, packed."""
    # A completion of one token, which nothing computes: what predicts it is what is wanted.
    packing = Packing.of(prompts_U, [[0]] * len(prompts_U), range(len(prompts_U)), device)
    return weights.through(partial(_prefill, weights, packing))


def _prefill(weights: SamplingWeights, packing: Packing) -> Prefilled:
    keys, values = [], []

    def keep(_: int, queries_N: Tensor, keys_N: Tensor, values_N: Tensor) -> Tensor:
        keys.append(packing.prompt_rows(keys_N))
        values.append(packing.prompt_rows(values_N))
        return attend(queries_N, keys_N, values_N, packing)

    x_N_H = run_layers(weights.layers, weights.embed(packing.ids_N), weights.rotation(packing.positions_N), keep)
    return Prefilled(
        torch.stack(keys),
        torch.stack(values),
        torch.tensor(packing.lengths[: len(packing.counts_U)], device=packing.device),
        weights.logits(x_N_H.index_select(0, packing.predicting_M)),
    )


SLACK = 8
"""Tokens between two looks for ended rows: a row may have drawn as many beyond its end."""

# Where steps are recorded, a few shapes serve all: rows come in powers of 2 of these, widths grow by a quarter in multiples.
_ROWS, _WIDTH, _GROWTH = 16, 64, 1.25
_BLANK = 16


@dataclass(frozen=True)
class Drawing:
    """How tokens are drawn, and what their log-probabilities are of."""

    temperature: float
    top_k: int
    top_p: float
    greedy: bool
    measured: Logprobs

    @staticmethod
    def of(request: Request) -> "Drawing":
        """What a request asks for."""
        how = request.decoding
        return Drawing(how.temperature, how.top_k, how.top_p, request.draws is None, request.logprobs)


class Slots:
    """S rows of at most `capacity` tokens, prompt included, `new` of them drawn, and what has been drawn for them."""

    def __init__(
        self, weights: SamplingWeights, device: torch.device, *, count: int, capacity: int, new: int, stop_ids: set[int]
    ) -> None:
        self.drawing: Drawing
        self.count, self.capacity, self.new = count, capacity, new
        self._tokens = capacity + SLACK
        cache = (len(weights.layers), count, weights.key_heads, self._tokens, weights.head_dim)
        self._keys, self._values = (torch.empty(cache, dtype=weights.dtype, device=device) for _ in range(2))
        self._blank = 0  # columns that hold numbers, from the first on: what is not looked at must not be NaN either
        self._rotation = weights.rotation(torch.arange(self._tokens, device=device))
        self._stop_ids = torch.tensor(sorted(stop_ids), dtype=torch.long, device=device)
        self._token, self._length, self._drawn, self._key = (
            torch.zeros(count, dtype=torch.long, device=device) for _ in range(4)
        )
        self.stopped = torch.zeros(count, dtype=torch.bool, device=device)
        self.ids = torch.zeros(count, new + SLACK, dtype=torch.long, device=device)
        self.logprobs = torch.zeros(self.ids.shape, device=device)
        self.allowed: Tensor | None = None
        """Where log-probs are renormalised: the tempered logits of what could be drawn last, (S, V), minus infinity elsewhere."""
        recorder = abilities(device).recorder if weights.stays else None
        self._recorded = None if recorder is None else RecordedSteps(recorder())

    def place(self, slots_N: Tensor, prefilled: Prefilled, prompts_N: Tensor, keys_N: Tensor) -> None:
        """Begin rows: each with its prompt of the prefilled ones and its key of random numbers. Draws their first tokens."""
        width = prefilled.keys.shape[3]
        if len(slots_N) < self.count:  # else all that is not blank is written here
            self._blank_until(width)
        self._blank = max(self._blank, width)
        self._keys[:, slots_N, :, :width] = prefilled.keys[:, prompts_N]
        self._values[:, slots_N, :, :width] = prefilled.values[:, prompts_N]
        self._length[slots_N] = prefilled.lengths_U[prompts_N]
        self._drawn[slots_N] = 0
        self._key[slots_N] = keys_N
        self.stopped[slots_N] = False
        self._draw(slots_N, prefilled.logits_U_V[prompts_N])

    def move(self, sources_N: Tensor, targets_N: Tensor, width: int) -> None:
        """Take rows of at most `width` tokens to other slots."""
        for states in (self._keys, self._values):
            states[:, targets_N, :, :width] = states[:, sources_N, :, :width]
        for state in (self._token, self._length, self._drawn, self._key, self.stopped, self.ids, self.logprobs):
            state[targets_N] = state[sources_N]

    def newest(self, rows: int, count: int) -> Tensor:
        """The newest tokens of the first rows, (rows, count); where one has fewer, its first stands before them."""
        columns = self._drawn[:rows, None] - torch.arange(count, 0, -1, device=self._drawn.device)
        return self.ids[:rows].gather(1, columns.clamp_(min=0))

    def _blank_until(self, width: int) -> None:
        if width > self._blank:
            wider = min(self._tokens, -(-width // _BLANK) * _BLANK)
            for states in (self._keys, self._values):
                states[:, :, :, self._blank : wider] = 0
            self._blank = wider

    def step(self, weights: SamplingWeights, rows: int, width: int) -> None:
        """Add one token to each of the first rows, none of which has more than `width` with it."""
        if self._recorded is None:
            self._blank_until(width)
            weights.through(partial(self._compute, weights, rows, width))
            return
        rows = min(self.count, _at_least(rows, _ROWS, 2.0))  # what the rows beyond draw is not used
        width = min(self._tokens, _at_least(width, _WIDTH, _GROWTH))
        self._blank_until(width)
        self._recorded.run((rows, width, self.drawing), partial(self._compute, weights, rows, width))

    def _compute(self, weights: SamplingWeights, rows: int, width: int) -> None:
        at = self._length[:rows]
        each = torch.arange(rows, device=at.device)
        unseen = torch.arange(width, device=at.device) > at[:, None]
        mask = torch.zeros(unseen.shape, dtype=self._keys.dtype, device=at.device)
        mask = mask.masked_fill_(unseen, float("-inf"))[:, None, None]

        def attend(index: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            all_keys, all_values = self._keys[index], self._values[index]
            all_keys[each, :, at] = keys
            all_values[each, :, at] = values
            return attend_one(queries, all_keys[:rows, :, :width], all_values[:rows, :, :width], mask)

        x = run_layers(weights.layers, weights.embed(self._token[:rows]), self._rotation.of(at), attend)
        self._length[:rows] = (at + 1).clamp_(max=self._tokens - 1)
        self._draw(slice(0, rows), weights.logits(x))

    def _draw(self, slots: slice | Tensor, logits: Tensor) -> None:
        how = self.drawing
        tempered = logits if how.temperature == 1 else logits / how.temperature
        allowed = truncate(tempered, top_k=how.top_k, top_p=how.top_p)
        shares = allowed.softmax(-1)
        drawn = self._drawn[slots]
        tokens = allowed.argmax(-1) if how.greedy else invert(shares, uniforms(self._key[slots], drawn))
        measured = {"tempered": tempered, "plain": logits, "renormalized": allowed}[how.measured]
        each = torch.arange(self.count, device=tokens.device)[slots]
        self.ids[each, drawn] = tokens
        if measured is allowed:  # what can be drawn is far above the smallest share
            self.logprobs[each, drawn] = shares.gather(-1, tokens[:, None])[:, 0].log()
        else:
            self.logprobs[each, drawn] = measured.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
        self._token[slots] = tokens
        self._drawn[slots] = (drawn + 1).clamp_(max=self.ids.shape[1] - 1)
        self.stopped[slots] |= (tokens[:, None] == self._stop_ids).any(-1)
        if how.measured == "renormalized":
            if self.allowed is None:  # rows begin before a step is recorded, which must find it where it stays
                self.allowed = allowed.new_empty(self.count, allowed.shape[-1])
            self.allowed[slots] = allowed


def _at_least(count: int, unit: int, growth: float) -> int:
    """The first that is enough of some multiples of `unit`, each about `growth` times the one before."""
    enough = unit
    while enough < count:
        enough = max(enough + unit, int(enough * growth) // unit * unit)
    return enough
