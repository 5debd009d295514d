"""The sampling engine: each prompt is prefilled once for its group, and finished rows leave the batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from backend.contract.training import Decoding
from worker.policy.policy import Policy
from worker.rollout.choice import choose, supports, truncate
from worker.rollout.draws import Draws
from worker.rollout.engine import Completion, Logprobs, OnGroup, OnProgress, check_lengths

# Tokens whose keys and values are held at once: bounds memory, and is far above what saturates a small machine.
_TOKENS_IN_FLIGHT = 131_072
_DRAW_AHEAD = 64
# Dropping rows copies the whole cache: worth it once an eighth of the rows would be computed for nothing.
_WORTH_COMPACTING = 7 / 8


@dataclass
class _Row:
    """A row of the batch: which completion it writes, and where it stands."""

    completion: Completion
    group: int
    index: int


class NativeEngine:
    """Samples with the policy's own model, in this process."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def sample(
        self,
        prompts_P: Sequence[Sequence[int]],
        *,
        group_size: int,
        decoding: Decoding,
        draws: Draws | None,
        logprobs: Logprobs = "tempered",
        first_group: int = 0,
        on_progress: OnProgress = lambda done: None,
        on_group: OnGroup = lambda p, completions: None,
    ) -> list[Completion]:
        """See `Engine`."""
        policy = self._policy
        check_lengths(policy, prompts_P, decoding)
        completions = [Completion() for _ in range(len(prompts_P) * group_size)]
        width = max(map(len, prompts_P)) + decoding.max_new_tokens
        prompts_at_once = max(1, _TOKENS_IN_FLIGHT // (width * group_size))
        done = 0
        for first in range(0, len(prompts_P), prompts_at_once):
            wave = prompts_P[first : first + prompts_at_once]
            rows = [
                _Row(completions[(first + p) * group_size + g], group=first_group + first + p, index=g)
                for p in range(len(wave))
                for g in range(group_size)
            ]
            generation = _Wave(policy, wave, rows, group_size, decoding, draws, logprobs)
            with policy.sampling():  # entered once: autocast keeps its copies of the weights until it is left
                while generation.rows:
                    generation.advance()
                    on_progress(done + len(rows) - len(generation.rows))
            done += len(rows)
            for completion in completions[done - len(rows) : done]:
                completion.text = policy.decode(completion.ids)
            for p in range(first, first + len(wave)):
                on_group(p, completions[p * group_size : (p + 1) * group_size])
        return completions


class _Wave:
    """Some groups that are generated together, one token of each unfinished row at a time."""

    def __init__(
        self,
        policy: Policy,
        prompts: Sequence[Sequence[int]],
        rows: list[_Row],
        group_size: int,
        decoding: Decoding,
        draws: Draws | None,
        logprobs: Logprobs,
    ) -> None:
        self.rows = rows  # unfinished ones, in the order of the batch
        self._policy, self._decoding, self._draws = policy, decoding, draws
        self._kind = logprobs
        self._stop_ids = policy.stop_ids
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
        self._cache.batch_repeat_interleave(group_size)
        self._attention = attention.repeat_interleave(group_size, 0)
        self._next_position = positions[:, -1].repeat_interleave(group_size, 0) + 1
        self._logits = logits.repeat_interleave(group_size, 0)
        self._slots = list(rows)  # one for each row of the batch, finished or not
        self._uniforms: Tensor | None = None

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
        tokens = choose(allowed, self._next_uniforms())
        measured = {"tempered": tempered, "plain": self._logits, "renormalized": allowed}[self._kind]
        logprobs = measured.gather(-1, tokens[:, None])[:, 0] - measured.logsumexp(-1)
        could_draw = supports(allowed) if self._kind == "renormalized" else None
        alive = []
        unfinished = {id(row) for row in self.rows}
        for slot, (row, token, logprob) in enumerate(zip(self._slots, tokens.tolist(), logprobs.tolist(), strict=True)):
            if id(row) in unfinished:
                row.completion.ids.append(token)
                row.completion.logprobs.append(logprob)
                if could_draw is not None:
                    row.completion.supports.append(could_draw[slot])
                if not self._ends(row.completion):
                    alive.append(slot)
        self.rows = [self._slots[slot] for slot in alive]
        self._position += 1
        if self.rows:
            if len(alive) <= _WORTH_COMPACTING * len(self._slots):
                tokens = self._compact(alive, tokens)
            seen = self._width + self._position
            self._logits = self._forward(tokens[:, None], self._attention[:, :seen], self._next_position[:, None])
            self._next_position = self._next_position + 1

    def _ends(self, completion: Completion) -> bool:
        stopped = completion.ids[-1] in self._stop_ids or (
            bool(self._decoding.stop)
            and any(text in self._policy.decode(completion.ids) for text in self._decoding.stop)
        )
        if stopped:
            completion.finish_reason = "stop"
        return stopped or len(completion.ids) >= self._decoding.max_new_tokens

    def _compact(self, alive: list[int], tokens: Tensor) -> Tensor:
        indices = torch.tensor(alive, device=tokens.device)
        self._cache.batch_select_indices(indices)
        self._attention, self._next_position = self._attention[indices], self._next_position[indices]
        if self._uniforms is not None:
            self._uniforms = self._uniforms[indices]
        self._slots = self.rows
        return tokens[indices]

    def _next_uniforms(self) -> Tensor | None:
        if self._draws is None:
            return None
        ahead = self._position % _DRAW_AHEAD
        if ahead == 0 or self._uniforms is None:
            groups = np.array([row.group for row in self._slots])
            indices = np.array([row.index for row in self._slots])
            drawn = self._draws.uniforms(groups, indices, self._position - ahead, _DRAW_AHEAD)
            self._uniforms = torch.from_numpy(drawn).to(self._policy.device)
        return self._uniforms[:, ahead]
