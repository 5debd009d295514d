"""Continuous batching inside a step: rows that end leave at once, and waiting ones take their places."""

from collections import deque
from collections.abc import Callable, Sequence

import torch

from worker.policy.device import abilities
from worker.policy.fused import SamplingWeights
from worker.policy.policy import Policy
from worker.rollout.choice import supports
from worker.rollout.engine import Request, Row, row_keys
from worker.rollout.slots import SLACK, Drawing, Prefilled, Slots, prefill
from worker.rollout.stop_texts import StopTexts

# What prompts may hold at once while they pass through the model.
_PREFILL_TOKENS = 16_384


class Generation:
    """R rows that are generated in the slots that there are."""

    def __init__(
        self, policy: Policy, weights: SamplingWeights, slots: Slots, request: Request, rows_R: Sequence[Row]
    ) -> None:
        self._policy, self._weights, self._slots = policy, weights, slots
        self._prompts_P, self._decoding, draws = request.prompts_P, request.decoding, request.draws
        slots.drawing = Drawing.of(request)
        self._stop_ids = policy.stop_ids
        self._stop = StopTexts(policy, request.decoding.stop)
        self._met: dict[int, int] = {}  # at which length a row that has just ended has a stop text
        self._waiting = deque(rows_R)
        self._keys = {} if draws is None else dict(zip(map(id, rows_R), row_keys(draws, rows_R).tolist(), strict=True))
        self._rows: list[Row] = []  # by slot
        self._drawn: list[int] = []  # of each
        self._ready: dict[int, tuple[Prefilled, int]] = {}  # by prompt, until its last row has begun
        self._keeps_supports = request.logprobs == "renormalized"
        # An asynchronous device computes on while the host has not looked for ended rows yet.
        ahead = abilities(policy.device).asynchronous and not self._keeps_supports
        self._look_every = SLACK if ahead else 1

    @torch.inference_mode()
    def run(self, on_ended: Callable[[list[Row]], None]) -> None:
        """To the end of all rows; `on_ended` gets those that have just ended, and may raise."""
        while self._waiting or self._rows:
            if self._waiting and len(self._rows) < self._slots.count:
                self._begin()
            else:
                for _ in range(self._look_every):
                    self._slots.step(self._weights, len(self._rows), self._width())
                    self._keep_supports(0)
                    self._drawn = [drawn + 1 for drawn in self._drawn]
            on_ended(self._take_ended())

    # ---- rows begin

    def _begin(self) -> None:
        """Give the free slots to waiting rows."""
        first = len(self._rows)
        count = min(len(self._waiting), self._slots.count - first)
        rows = [self._waiting.popleft() for _ in range(count)]
        self._prefill([row.prompt for row in rows])
        self._rows += rows
        self._drawn += [0] * count
        by_pass: dict[int, list[int]] = {}
        for slot in range(first, first + count):
            by_pass.setdefault(id(self._ready[self._rows[slot].prompt][0]), []).append(slot)
        for slots in by_pass.values():
            self._place(slots)
        self._keep_supports(first)
        still = {row.prompt for row in self._waiting}
        self._ready = {prompt: ready for prompt, ready in self._ready.items() if prompt in still}

    def _prefill(self, prompts: Sequence[int]) -> None:
        missing = [prompt for prompt in dict.fromkeys(prompts) if prompt not in self._ready]
        while missing:
            part = [missing.pop(0)]
            longest = len(self._prompts_P[part[0]])
            while missing:
                longest = max(longest, len(self._prompts_P[missing[0]]))
                if longest * (len(part) + 1) > _PREFILL_TOKENS:
                    break
                part.append(missing.pop(0))
            prefilled = prefill(self._weights, [self._prompts_P[prompt] for prompt in part], self._policy.device)
            self._ready |= {prompt: (prefilled, place) for place, prompt in enumerate(part)}

    def _place(self, slots: list[int]) -> None:
        rows = [self._rows[slot] for slot in slots]
        device = self._policy.device
        self._slots.place(
            torch.tensor(slots, device=device),
            self._ready[rows[0].prompt][0],
            torch.tensor([self._ready[row.prompt][1] for row in rows], device=device),
            torch.tensor([self._keys.get(id(row), 0) for row in rows], device=device),
        )
        for slot in slots:
            self._drawn[slot] = 1

    # ---- rows go on

    def _width(self) -> int:
        """Tokens of the longest row, with the newest, whose keys and values are still to come."""
        return max(len(self._prompts_P[row.prompt]) + drawn for row, drawn in zip(self._rows, self._drawn, strict=True))

    def _keep_supports(self, first: int) -> None:
        """Of the rows from this slot on: the tokens that could be drawn just now."""
        if self._keeps_supports and self._slots.allowed is not None:
            allowed = self._slots.allowed[first : len(self._rows)]
            for row, ids in zip(self._rows[first:], supports(allowed), strict=True):
                row.completion.supports.append(ids)

    # ---- rows end

    def _take_ended(self) -> list[Row]:
        """Write out the rows that have ended, and close the gaps."""
        limit, count = self._decoding.max_new_tokens, len(self._rows)
        stopped = self._slots.stopped[:count].tolist()
        if self._decoding.stop:
            stopped = [one or text for one, text in zip(stopped, self._met_stop_text(), strict=True)]
        ended = [slot for slot, drawn in enumerate(self._drawn) if stopped[slot] or drawn >= limit]
        if not ended:
            return []
        rows = [self._rows[slot] for slot in ended]
        places = torch.tensor(ended, device=self._policy.device)
        ids, logprobs = self._slots.ids[places].tolist(), self._slots.logprobs[places].tolist()
        for place, (slot, row) in enumerate(zip(ended, rows, strict=True)):
            self._write(row, ids[place][: self._drawn[slot]], logprobs[place])
        self._close_gaps(set(ended))
        return rows

    def _met_stop_text(self) -> list[bool]:
        """Which rows have a stop text, looked for in the tokens since the last look."""
        new = [drawn - len(row.completion.ids) for row, drawn in zip(self._rows, self._drawn, strict=True)]
        newest = self._slots.newest(len(self._rows), max(new)).tolist()
        for row, count, ids in zip(self._rows, new, newest, strict=True):
            drawn = row.completion.ids
            drawn += ids[len(ids) - count :]
            if (length := self._stop.end_of(drawn, len(drawn) - count)) is not None:
                self._met[id(row)] = length
        return [id(row) in self._met for row in self._rows]

    def _write(self, row: Row, ids: list[int], logprobs: list[float]) -> None:
        """What was drawn, without what a row was ahead."""
        completion, limit = row.completion, self._decoding.max_new_tokens
        stops = (place + 1 for place, token in enumerate(ids) if token in self._stop_ids)
        length = min(next(stops, len(ids) + 1), self._met.pop(id(row), len(ids) + 1))
        completion.ids = ids[: min(length, limit)]
        completion.logprobs = logprobs[: len(completion.ids)]
        completion.finish_reason = "stop" if length <= min(len(ids), limit) else "length"

    def _close_gaps(self, ended: set[int]) -> None:
        """The last rows take the slots of those that ended before them."""
        count = len(self._rows) - len(ended)
        gaps = [slot for slot in ended if slot < count]
        movers = [slot for slot in range(count, len(self._rows)) if slot not in ended]
        if gaps:
            device = self._policy.device
            self._slots.move(torch.tensor(movers, device=device), torch.tensor(gaps, device=device), self._width())
        for gap, mover in zip(gaps, movers, strict=True):
            self._rows[gap], self._drawn[gap] = self._rows[mover], self._drawn[mover]
        del self._rows[count:], self._drawn[count:]
