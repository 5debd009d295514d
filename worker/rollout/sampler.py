"""The native engine: samples with the policy's own weights, in this process, on its device."""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch.nn.utils.rnn import pad_sequence

from backend.contract.training import Decoding
from worker.policy.decoder import Decoder
from worker.policy.device import abilities, cache_bytes
from worker.policy.fused import SamplingWeights
from worker.policy.logprobs import TokenBatch
from worker.policy.policy import Policy
from worker.rollout.draws import Draws
from worker.rollout.engine import Completion, OnGroup, OnProgress, Request, Row, check_lengths, rows_of
from worker.rollout.generation import Generation
from worker.rollout.plain import sample_plainly
from worker.rollout.slots import Slots

_KEPT_BYTES = 256 * 2**20  # slots of this size are kept while the policy is trained on a CPU
_TYPICAL_ROWS = 32  # what the weights are laid out for: any number of rows can read them
_CHECKED_TOKENS = 8


class NativeEngine:
    """Our own loop over the layers, with continuous batching; transformers' forward pass for models that the loop does not know.

    Before the first rollout a few tokens are drawn and held against a plain forward; where they differ, the plain way is taken.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._fast = policy.decoder is not None
        self._checked = False
        self._weights: SamplingWeights | None = None
        self._loaded = -1  # the policy's updates when they were copied
        self._slots: Slots | None = None
        self._most_slots = 0  # of their capacity
        self._share = 1.0  # of the memory for keys and values: less once training ran out of it

    def sample(
        self,
        request: Request,
        *,
        on_progress: OnProgress = lambda done: None,
        on_group: OnGroup = lambda p, completions: None,
    ) -> list[Completion]:
        """See `Engine`."""
        check_lengths(self._policy, request)
        if self._fast and not self._checked:
            self._check(request.prompts_P)
        rows_R, size = rows_of(request), request.group_size
        completions = [row.completion for row in rows_R]
        unfinished_P, done = [size] * len(request.prompts_P), 0

        def on_ended(rows: list[Row]) -> None:
            nonlocal done
            done += len(rows)
            for row in rows:
                row.completion.text = self._policy.decode(row.completion.ids)
                unfinished_P[row.prompt] -= 1
                if not unfinished_P[row.prompt]:
                    on_group(row.prompt, completions[row.prompt * size : (row.prompt + 1) * size])
            on_progress(done)

        if self._fast:
            self._generate(request, rows_R, on_ended)
        else:
            sample_plainly(self._policy, request, rows_R, on_ended)
        return completions

    def make_room(self) -> bool:
        """See `Engine`."""
        held, self._slots, self._weights = self._slots is not None, None, None
        if held:
            self._share /= 2
        return held

    def _generate(
        self, request: Request, rows_R: Sequence[Row], on_ended: Callable[[list[Row]], None], most: int | None = None
    ) -> None:
        with torch.inference_mode():
            weights = self._current_weights()
            slots = self._slots_for(weights, request, most or request.rows)
            generation = Generation(self._policy, weights, slots, request, rows_R)
        try:
            generation.run(on_ended)
        finally:
            if not abilities(self._policy.device).keeps_copies:
                self._weights = slots.allowed = None  # made again in a moment; till then the update needs the memory
                if slots.capacity * weights.token_bytes * slots.count > _KEPT_BYTES:
                    self._slots = None

    def _current_weights(self) -> SamplingWeights:
        policy = self._policy
        if self._weights is None:
            output = policy.model.get_output_embeddings()
            self._weights = SamplingWeights(
                cast(Decoder, policy.decoder), output, policy.compute_dtype, rows=_TYPICAL_ROWS
            )
        elif self._loaded != policy.updates:
            self._weights.load()
        self._loaded = policy.updates
        return self._weights

    def _slots_for(self, weights: SamplingWeights, request: Request, rows: int) -> Slots:
        """Those that there are if they are large enough, with the steps that they have recorded; else larger ones."""
        device, step = self._policy.device, abilities(self._policy.device).capacity_step
        new = request.decoding.max_new_tokens
        capacity = -(-request.longest_row // step) * step
        if (has := self._slots) is not None:
            if capacity <= has.capacity and new <= has.new and min(rows, self._most_slots) <= has.count:
                return has
            rows, new, capacity = max(rows, has.count), max(new, has.new), max(capacity, has.capacity)
        self._slots = has = None  # first, since two of them may not fit
        room = int(self._share * cache_bytes(device, promised=self._policy.bytes_to_come()))
        self._most_slots = max(1, room // (capacity * weights.token_bytes))
        self._slots = Slots(
            weights,
            device,
            count=min(rows, self._most_slots),
            capacity=capacity,
            new=new,
            stop_ids=self._policy.stop_ids,
        )
        return self._slots

    def _check(self, prompts: Sequence[Sequence[int]]) -> None:
        """Of the shortest and the longest prompt; one of the rows waits until another has ended."""
        self._checked = True
        few = [min(prompts, key=len), max(prompts, key=len)]
        request = Request(few, 2, Decoding(max_new_tokens=_CHECKED_TOKENS), Draws(0, "sample"))
        rows = rows_of(request)
        self._generate(request, rows, lambda ended: None, most=len(rows) - 1)
        completions = [row.completion for row in rows]
        batch = TokenBatch.of([few[row.prompt] for row in rows], [one.ids for one in completions], self._policy.device)
        logprobs = pad_sequence([torch.tensor(one.logprobs) for one in completions], batch_first=True)
        apart, allowed = self._policy.apart_from_plain(batch, logprobs)
        if not apart <= allowed:
            self._fast = False
            self._policy.remarks.append(
                f"the fast sampler's log-probs are {apart:.2g} apart from a plain forward (at most {allowed:g} is rounding): "
                "transformers' forward pass samples instead, which is slower"
            )
