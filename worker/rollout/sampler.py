"""The native engine: samples with the policy's own weights, in this process, on its device."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from backend.contract.training import Decoding
from worker.policy.decoder import Decoder
from worker.policy.device import abilities, cache_bytes
from worker.policy.fused import SamplingWeights
from worker.policy.logprobs import TokenBatch
from worker.policy.policy import Policy
from worker.rollout.choice import choose, supports, truncate
from worker.rollout.draws import Draws, uniforms
from worker.rollout.engine import Completion, OnGroup, OnProgress, Request, Row, check_lengths, quiet, row_keys, rows_of
from worker.rollout.gathered import GatheredWeights, announce, pass_on
from worker.rollout.generation import Generation
from worker.rollout.slots import Slots
from worker.rollout.stop_texts import StopTexts

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
        self, request: Request, *, on_progress: OnProgress = quiet, on_group: OnGroup = quiet
    ) -> list[Completion]:
        """See `Engine`."""
        if request.prompts_P:
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
        if not rows_R:
            weights.leave(partial(on_ended, []))
            return
        with torch.inference_mode():
            slots = self._slots_for(weights, request, most or request.rows)
            generation = Generation(self._policy, weights, slots, request, rows_R)
        try:
            generation.run(on_ended)
            weights.leave(partial(on_ended, []))
        finally:
            if not abilities(self._policy.device).keeps_copies:
                self._weights = slots.allowed = None  # made again in a moment; till then the update needs the memory
                if slots.capacity * weights.token_bytes * slots.count > _KEPT_BYTES:
                    self._slots = None

    def _current_weights(self) -> SamplingWeights:
        policy = self._policy
        if policy.ranks.in_shards:
            self._weights = GatheredWeights(policy)
        elif self._weights is None:
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
        few = self._policy.ranks.of_first([min(prompts, key=len), max(prompts, key=len)] if prompts else [])
        request = Request(few, 2, Decoding(max_new_tokens=_CHECKED_TOKENS), Draws(0, "sample"))
        rows = rows_of(request)
        self._generate(request, rows, lambda ended: None, most=len(rows) - 1)
        completions = [row.completion for row in rows]
        batch = TokenBatch.of([few[row.prompt] for row in rows], [one.ids for one in completions], self._policy.device)
        logprobs = pad_sequence([torch.tensor(one.logprobs) for one in completions], batch_first=True)
        own, allowed = self._policy.apart_from_plain(batch, logprobs)
        apart = max(self._policy.ranks.gather(own), key=lambda one: (not one <= allowed, one))  # NaN is beyond it, too
        if not apart <= allowed:
            self._fast = False
            self._policy.remarks.append(
                f"the fast sampler's log-probs are {apart:.2g} apart from a plain forward (at most {allowed:g} is rounding): "
                "transformers' forward pass samples instead, which is slower"
            )


# Tokens whose keys and values are held at once: bounds memory, and is far above what saturates a small machine.
_TOKENS_IN_FLIGHT = 131_072
# Dropping rows copies the whole cache: worth it once an eighth of the rows would be computed for nothing.
_WORTH_COMPACTING = 7 / 8


def sample_plainly(
    policy: Policy, request: Request, rows_R: Sequence[Row], on_ended: Callable[[list[Row]], None]
) -> None:
    """Write the completions of R rows, those of a prompt one after the other; `on_ended` gets the rows that have just ended."""
    size = request.group_size
    if not rows_R:
        return pass_on(policy, partial(on_ended, []))
    at_once = max(1, _TOKENS_IN_FLIGHT // (request.longest_row * size))
    for first in range(0, len(request.prompts_P), at_once):
        some = replace(request, prompts_P=request.prompts_P[first : first + at_once])
        wave = Wave(policy, some, list(rows_R[first * size : (first + at_once) * size]))
        with policy.sampling():  # entered once: autocast keeps its copies of the weights until it is left
            while wave.rows:
                unfinished = wave.rows
                wave.advance()
                left = {id(row) for row in wave.rows}
                on_ended([row for row in unfinished if id(row) not in left])
    return pass_on(policy, partial(on_ended, []))


class Wave:
    """Some groups that are generated together, one token of each unfinished row at a time."""

    def __init__(self, policy: Policy, request: Request, rows: list[Row]) -> None:
        prompts, decoding, draws = request.prompts_P, request.decoding, request.draws
        self.rows = rows  # unfinished ones, in the order of the batch
        self._policy, self._decoding = policy, decoding
        self._kind = request.logprobs
        self._stop = StopTexts(policy, decoding.stop)
        self._position = 0
        width = max(map(len, prompts))
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        attention = torch.zeros(len(prompts), width + decoding.max_new_tokens, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(list(prompt))
            attention[row, width - len(prompt) :] = 1  # what is not generated yet is cut off by slicing
        ids, attention = ids.to(policy.device), attention.to(policy.device)
        positions = (attention[:, :width].cumsum(-1) - 1).clamp(min=0)
        self._width = width
        self._cache = DynamicCache(config=policy.config)
        logits = self._forward(ids, attention[:, :width], positions)
        self._cache.batch_repeat_interleave(request.group_size)
        self._attention = attention.repeat_interleave(request.group_size, 0)
        self._next_position = positions[:, -1].repeat_interleave(request.group_size, 0) + 1
        self._logits = logits.repeat_interleave(request.group_size, 0)
        self._slots = list(rows)  # one for each row of the batch, finished or not
        self._keys = None if draws is None else row_keys(draws, rows).to(policy.device)

    def _forward(self, ids: Tensor, attention: Tensor, positions: Tensor) -> Tensor:
        announce(self._policy)
        with self._policy.sampling() as model:
            output = model(
                input_ids=ids,
                attention_mask=attention,
                position_ids=positions,
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
            )
        logits: Tensor = output.logits[:, -1].float()
        return logits

    def advance(self) -> None:
        """Draw one token for every row, let the finished ones go, and compute the logits of the next."""
        tempered = self._logits / self._decoding.temperature
        allowed = truncate(tempered, top_k=self._decoding.top_k, top_p=self._decoding.top_p)
        at = torch.full_like(self._next_position, self._position)
        tokens = choose(allowed, None if self._keys is None else uniforms(self._keys, at))
        measured = {"tempered": tempered, "plain": self._logits, "renormalized": allowed}[self._kind]
        logprobs = measured.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
        could_draw = supports(allowed) if self._kind == "renormalized" else None
        alive = []
        unfinished = {id(row) for row in self.rows}
        for slot, (row, token, logprob) in enumerate(zip(self._slots, tokens.tolist(), logprobs.tolist(), strict=True)):
            if id(row) in unfinished:
                row.completion.ids.append(token)
                row.completion.logprobs.append(logprob)
                if could_draw is not None:
                    row.completion.supports.append(could_draw[slot])
                ids = row.completion.ids
                if token in self._policy.stop_ids or self._stop.end_of(ids, len(ids) - 1) is not None:
                    row.completion.finish_reason = "stop"
                elif len(ids) < self._decoding.max_new_tokens:
                    alive.append(slot)
        self.rows = [self._slots[slot] for slot in alive]
        self._position += 1
        if self.rows:
            if len(alive) <= _WORTH_COMPACTING * len(self._slots):
                indices = torch.tensor(alive, device=tokens.device)
                self._cache.batch_select_indices(indices)
                self._attention, self._next_position = self._attention[indices], self._next_position[indices]
                self._keys = None if self._keys is None else self._keys[indices]
                self._slots, tokens = self.rows, tokens[indices]
            seen = self._width + self._position
            self._logits = self._forward(tokens[:, None], self._attention[:, :seen], self._next_position[:, None])
            self._next_position = self._next_position + 1
