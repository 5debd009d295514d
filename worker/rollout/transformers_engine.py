"""A sampling engine on transformers' continuous batching: requests share each pass, and a waiting one takes a finished one's place."""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from peft import LoraModel, PeftModel
from transformers import ContinuousBatchingConfig, GenerationConfig, PreTrainedModel
from transformers.generation.continuous_batching import ContinuousBatchingManager, ContinuousMixin
from transformers.generation.continuous_batching.requests import GenerationOutput

from worker.errors import RunFailure
from worker.failure import of_device
from worker.policy.policy import Policy, plain_weights
from worker.rollout.engine import (
    Completion,
    OnGroup,
    OnProgress,
    Request,
    check_lengths,
    check_measures_what_it_draws,
    quiet,
    seed_of,
)

_LOOK_SECONDS = 0.1
_CHILD = "__child#"  # how the library names the second and later completions of a request
# On an accelerator the library sizes its cache by the memory that is free. On a CPU that would be most of the machine's.
_BLOCK_TOKENS, _CPU_BLOCKS, _CPU_BATCH_TOKENS = 256, 512, 1024
_SPARE_BLOCKS = 1.25  # new requests wait while less than 15 % of the blocks are free


class TransformersEngine:
    """Samples in this process, with a copy of the model.

    The library changes the attention of the model it runs and works in a thread of its own, where autocast does not reach. The
    copy has the precision that the policy samples in, and adapters merged; it follows the policy whenever the weights changed.
    Draws come from one generator for the whole call: a completion depends on what shares its batch.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._copy: PreTrainedModel | None = None
        self._updates = 0

    def sample(
        self, request: Request, *, on_progress: OnProgress = quiet, on_group: OnGroup = quiet
    ) -> list[Completion]:
        """See `Engine`. Log-probs are of the distribution drawn from, and of a greedy choice at temperature 1."""
        check_lengths(self._policy, request)
        check_measures_what_it_draws(request.decoding, request.logprobs)
        prompts_P, group_size, decoding = request.prompts_P, request.group_size, request.decoding
        # The completions of one request share its cache; the library refuses several greedy ones, and fails on a single token.
        shared = request.draws is not None and min(map(len, prompts_P)) > 1
        seed = None if request.draws is None else seed_of(request.draws, request.first_group)
        generation = GenerationConfig(  # type: ignore[no-untyped-call]
            do_sample=seed is not None,
            temperature=None if seed is None else decoding.temperature,
            max_new_tokens=decoding.max_new_tokens,
            eos_token_id=sorted(self._policy.stop_ids),
            num_return_sequences=group_size if shared else 1,
        )
        gathering = _Gathering(self._policy, len(prompts_P), group_size, decoding.stop, on_group)
        with self._manager(generation, seed, self._cache_blocks(request)) as manager:
            for p, prompt in enumerate(prompts_P):  # before the start, so that the batches do not depend on timing
                for g in range(1 if shared else group_size):
                    name = f"{p}{_CHILD}{g - 1}" if g else str(p)
                    manager.add_request(list(prompt), request_id=name, streaming=bool(decoding.stop))
            manager.start()
            while gathering.unfinished:
                gathering.take(_next(manager), manager)
                on_progress(len(gathering.completions) - len(gathering.unfinished))
        return gathering.completions

    def make_room(self) -> bool:
        """See `Engine`."""
        held, self._copy = self._copy is not None, None
        return held

    @contextmanager
    def _manager(
        self, generation: GenerationConfig, seed: int | None, blocks: int | None
    ) -> Iterator[ContinuousBatchingManager]:
        """The library at work, until the end or an error: then its thread and its cache are gone."""
        config = ContinuousBatchingConfig(return_logprobs=True, seed=seed or 0, num_blocks=blocks)
        config.max_batch_tokens = None if blocks is None else _CPU_BATCH_TOKENS
        config.auto_switch_to_flash = self._dtype.itemsize == 2  # flash attention knows no float32
        model = cast(ContinuousMixin, self._synced_copy())
        cuda = [self._policy.device] if self._policy.device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):  # the library seeds the process's generators
            try:
                manager = model.init_continuous_batching(generation, config)
            except ValueError as error:
                raise _failure(str(error)) from error
            try:
                yield manager
            finally:
                manager.stop(hard_stop=True)
                manager.destroy()

    def _cache_blocks(self, request: Request) -> int | None:
        """How much the library may cache; None leaves it to the library."""
        if self._policy.device.type != "cpu":
            return None
        each = math.ceil(request.longest_row / _BLOCK_TOKENS) + 1
        return max(2 * each, min(math.ceil(_SPARE_BLOCKS * request.rows * each), _CPU_BLOCKS))

    @property
    def _dtype(self) -> torch.dtype:
        """What the policy computes in while it samples."""
        kind = self._policy.device.type
        with self._policy.sampling() as model:
            return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else next(model.parameters()).dtype

    @torch.no_grad()
    def _synced_copy(self) -> PreTrainedModel:
        """The copy, with the weights as they are now."""
        if self._copy is None:
            twin = copy.deepcopy(self._policy.model)
            if isinstance(twin, PeftModel):
                twin = cast(PreTrainedModel, cast(LoraModel, twin.base_model).merge_and_unload())
            self._copy = cast(PreTrainedModel, cast(torch.nn.Module, twin).to(self._dtype).requires_grad_(False))
            if self._dtype.itemsize > 2 and not hasattr(ContinuousBatchingConfig, "auto_switch_to_flash"):
                self._copy.set_attn_implementation("paged|sdpa")  # 5.17 turns to flash by itself from any other
        elif self._updates == self._policy.updates:
            return self._copy
        own = dict(self._copy.named_parameters(remove_duplicate=False))
        for name, weight in plain_weights(self._policy):
            own[name].copy_(weight)
        if self._policy.device.type == "cuda":
            torch.cuda.synchronize(self._policy.device)  # the library reads them on a stream of its own
        self._updates = self._policy.updates
        return self._copy


class _Gathering:
    """Completions as they come, in any order."""

    def __init__(self, policy: Policy, prompts: int, group_size: int, stop: Sequence[str], on_group: OnGroup) -> None:
        self._policy, self._group_size, self._stop, self._on_group = policy, group_size, stop, on_group
        self.completions = [Completion() for _ in range(prompts * group_size)]
        self.unfinished = set(range(len(self.completions)))

    def take(self, output: GenerationOutput | None, manager: ContinuousBatchingManager) -> None:
        """One request's tokens so far: all where nothing but its own end stops it, else after every token."""
        if output is None:
            return
        prompt, _, child = output.request_id.partition(_CHILD)
        row = int(prompt) * self._group_size + (int(child) + 1 if child else 0)
        if row not in self.unfinished:  # it was cancelled at a stop text
            return
        completion = self.completions[row]
        completion.ids, completion.logprobs = list(output.generated_tokens), list(output.logprobs)
        completion.text = self._policy.decode(completion.ids)
        stopped = any(text in completion.text for text in self._stop)
        if stopped or completion.ids[-1] in self._policy.stop_ids:
            completion.finish_reason = "stop"
        if not (stopped or output.is_finished()):
            return
        if not output.is_finished():
            manager.cancel_request(output.request_id)
        self.unfinished.remove(row)
        first = row - row % self._group_size
        group = range(first, first + self._group_size)
        if self.unfinished.isdisjoint(group):
            self._on_group(first // self._group_size, [self.completions[one] for one in group])


def _next(manager: ContinuousBatchingManager) -> GenerationOutput | None:
    """What came last, if anything did. Raises RunFailure `engine_failed` where the library gave up."""
    output = manager.get_result(timeout=_LOOK_SECONDS)
    if output is not None and output.error is None:
        return output
    reason = None if manager.is_running() else "its thread ended"
    if output is not None:
        reason = output.error
    if reason is None:
        return None
    error = RuntimeError(reason)
    if of_device(error):
        raise error
    raise _failure(reason)


def _failure(reason: str) -> RunFailure:
    return RunFailure(
        "engine_failed",
        f"transformers' continuous batching cannot sample from this model: {reason}. Set sampling.engine to native.",
    )
