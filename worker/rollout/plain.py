"""Sampling by transformers' own forward pass, for models whose layers our loop does not know: prompts are prefilled once."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from transformers import DynamicCache

from worker.policy.policy import Policy
from worker.rollout.choice import choose, supports, truncate
from worker.rollout.draws import uniforms
from worker.rollout.engine import Completion, Request, Row, row_keys
from worker.rollout.stop_texts import StopTexts

# Tokens whose keys and values are held at once: bounds memory, and is far above what saturates a small machine.
_TOKENS_IN_FLIGHT = 131_072
# Dropping rows copies the whole cache: worth it once an eighth of the rows would be computed for nothing.
_WORTH_COMPACTING = 7 / 8


def sample_plainly(
    policy: Policy, request: Request, rows_R: Sequence[Row], on_ended: Callable[[list[Row]], None]
) -> None:
    """Write the completions of R rows, those of a prompt one after the other; `on_ended` gets the rows that have just ended."""
    size = request.group_size
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
                if not self._ended(row.completion):
                    alive.append(slot)
        self.rows = [self._slots[slot] for slot in alive]
        self._position += 1
        if self.rows:
            if len(alive) <= _WORTH_COMPACTING * len(self._slots):
                tokens = self._compact(alive, tokens)
            seen = self._width + self._position
            self._logits = self._forward(tokens[:, None], self._attention[:, :seen], self._next_position[:, None])
            self._next_position = self._next_position + 1

    def _ended(self, completion: Completion) -> bool:
        ids = completion.ids
        if ids[-1] in self._policy.stop_ids or self._stop.end_of(ids, len(ids) - 1) is not None:
            completion.finish_reason = "stop"
            return True
        return len(ids) >= self._decoding.max_new_tokens

    def _compact(self, alive: list[int], tokens: Tensor) -> Tensor:
        indices = torch.tensor(alive, device=tokens.device)
        self._cache.batch_select_indices(indices)
        self._attention, self._next_position = self._attention[indices], self._next_position[indices]
        if self._keys is not None:
            self._keys = self._keys[indices]
        self._slots = self.rows
        return tokens[indices]
