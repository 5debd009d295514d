"""Slots: the rows that are being generated, side by side, each with its keys and values at a fixed place.

Rows 0 to n − 1 are in use. Nothing moves while they are; one that ends gives its slot to a waiting row, or to the last one.
"""

import torch
from torch import Tensor

from worker.policy.attention import attend_one
from worker.policy.decoder import run_layers
from worker.policy.fused import SamplingWeights
from worker.rollout.choice import invert, truncate
from worker.rollout.draws import uniforms
from worker.rollout.engine import Request
from worker.rollout.prefill import Prefilled

SLACK = 8
"""Tokens that a row may be ahead of whoever looks at it."""

# On a GPU, steps of equal shape are recorded once and played back: rows and widths come in multiples of these.
_ROWS, _WIDTH = 16, 64
_BLANK = 16


class Slots:
    """S rows of at most `capacity` tokens, prompt included, and what has been drawn for them."""

    def __init__(
        self,
        weights: SamplingWeights,
        device: torch.device,
        request: Request,
        *,
        count: int,
        capacity: int,
        stop_ids: set[int],
    ) -> None:
        self._decoding, self._kind, self._greedy = request.decoding, request.logprobs, request.draws is None
        self.count, self._capacity = count, capacity + SLACK
        cache = (len(weights.layers), count, weights.key_heads, self._capacity, weights.head_dim)
        self._keys, self._values = (torch.empty(cache, dtype=weights.dtype, device=device) for _ in range(2))
        self._blank = 0  # so many columns hold numbers: what is not looked at must not be NaN either
        self._rotation = weights.rotation(torch.arange(self._capacity, device=device))
        self._stop_ids = torch.tensor(sorted(stop_ids), dtype=torch.long, device=device)
        self._token, self._length, self._drawn, self._key = (
            torch.zeros(count, dtype=torch.long, device=device) for _ in range(4)
        )
        self.stopped = torch.zeros(count, dtype=torch.bool, device=device)
        self.ids = torch.zeros(count, self._decoding.max_new_tokens + SLACK, dtype=torch.long, device=device)
        self.logprobs = torch.zeros(self.ids.shape, device=device)
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph | None] = {}
        # Nothing that a recorded step leaves is read but what lies here, so that all of them may use the same memory.
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def place(self, slots_N: Tensor, prefilled: Prefilled, prompts_N: Tensor, keys_N: Tensor) -> Tensor:
        """Begin rows: each with its prompt of the prefilled ones and its key of random numbers. Draws their first tokens.

        Returns the tempered logits of what could be drawn, (N, V), minus infinity where nothing could.
        """
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
        return self._draw(slots_N, prefilled.logits_U_V[prompts_N])

    def move(self, sources_N: Tensor, targets_N: Tensor, width: int) -> None:
        """Take rows of at most `width` tokens to other slots."""
        for states in (self._keys, self._values):
            states[:, targets_N, :, :width] = states[:, sources_N, :, :width]
        for state in (self._token, self._length, self._drawn, self._key, self.stopped, self.ids, self.logprobs):
            state[targets_N] = state[sources_N]

    def _blank_until(self, width: int) -> None:
        if width > self._blank:
            wider = min(self._capacity, -(-width // _BLANK) * _BLANK)
            for states in (self._keys, self._values):
                states[:, :, :, self._blank : wider] = 0
            self._blank = wider

    def step(self, weights: SamplingWeights, rows: int, width: int) -> Tensor | None:
        """Add one token to each of the first rows, none of which has more than `width` with it.

        Returns what `place` returns; None where the step was played back.
        """
        if self._token.device.type != "cuda" or self._kind == "renormalized":
            self._blank_until(width)
            return self._compute(weights, rows, width)
        rows = min(self.count, -(-rows // _ROWS) * _ROWS)  # the rows beyond are drawn for nobody
        width = min(self._capacity, -(-width // _WIDTH) * _WIDTH)
        self._blank_until(width)
        if (rows, width) not in self._graphs:
            self._graphs[rows, width] = None  # the first step of a shape warms up what a recording must find ready
            return self._compute(weights, rows, width)
        graph = self._graphs[rows, width]
        if graph is None:
            graph = self._graphs[rows, width] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                self._compute(weights, rows, width)
        graph.replay()
        return None

    def _compute(self, weights: SamplingWeights, rows: int, width: int) -> Tensor:
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
        self._length[:rows] = (at + 1).clamp_(max=self._capacity - 1)
        return self._draw(slice(0, rows), weights.logits(x))

    def _draw(self, slots: slice | Tensor, logits: Tensor) -> Tensor:
        tempered = logits if self._decoding.temperature == 1 else logits / self._decoding.temperature
        allowed = truncate(tempered, top_k=self._decoding.top_k, top_p=self._decoding.top_p)
        shares = allowed.softmax(-1)
        drawn = self._drawn[slots]
        tokens = allowed.argmax(-1) if self._greedy else invert(shares, uniforms(self._key[slots], drawn))
        measured = {"tempered": tempered, "plain": logits, "renormalized": allowed}[self._kind]
        each = torch.arange(self.count, device=tokens.device)[slots]
        self.ids[each, drawn] = tokens
        if measured is allowed:  # what can be drawn is far above the smallest share
            self.logprobs[each, drawn] = shares.gather(-1, tokens[:, None])[:, 0].log()
        else:
            self.logprobs[each, drawn] = measured.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
        self._token[slots] = tokens
        self._drawn[slots] = (drawn + 1).clamp_(max=self.ids.shape[1] - 1)
        self.stopped[slots] |= (tokens[:, None] == self._stop_ids).any(-1)
        return allowed
