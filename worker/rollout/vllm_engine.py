"""A sampling engine on an external vLLM server, which gets the policy's weights through a folder that both see."""

import asyncio
import hashlib
import math
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from backend.contract.base import Json
from backend.contract.training import Decoding
from worker.errors import RunFailure
from worker.policy.logprobs import TokenBatch
from worker.policy.policy import Policy, hand_over
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
from worker.rollout.vllm_server import REQUESTS_AT_ONCE, Choice, VllmServer

_LOOK_SECONDS = 0.5
_FOLDER = "groupscope-"
_FAR = 0.15
"""Nats a token, in the mean of a group. On SmolLM2 bfloat16 is 0.02 to 0.08 away, another temperature (1 for 0.7) 0.23 to 0.5."""


class VllmEngine:
    """Samples with a server that the operator started for this worker alone: one request for each prompt, all at once.

    Of several processes each asks for its own groups; the first one gives the server the weights, and the others wait for it.
    """

    def __init__(self, policy: Policy, url: str, weights: Path, api_key: str | None) -> None:
        self._policy, self._weights = policy, weights.resolve()
        self._server = partial(VllmServer, url, api_key, at_once=max(1, REQUESTS_AT_ONCE // policy.ranks.count))
        self._updates: int | None = None  # of the weights that the server has
        self._weight_check = WeightCheck(policy)
        self._checked = False

    def sample(
        self, request: Request, *, on_progress: OnProgress = quiet, on_group: OnGroup = quiet
    ) -> list[Completion]:
        """See `Engine`. Log-probs are the server's. Raises RunFailure `vllm_server`, `vllm_mismatch`."""
        prompts_P, group_size, draws = request.prompts_P, request.group_size, request.draws
        if prompts_P:
            check_lengths(self._policy, request)
        check_measures_what_it_draws(request.decoding, request.logprobs)
        if self._updates != self._policy.updates:
            self._load(prompts_P)
        groups: dict[int, list[Completion]] = {}

        def take(p: int, choices: list[Choice]) -> None:
            groups[p] = [
                Completion(
                    list(choice.token_ids),
                    list(choice.logprobs.token_logprobs),
                    choice.finish_reason,
                    self._policy.decode(choice.token_ids),
                )
                for choice in (choices * group_size if draws is None else choices)
            ]
            on_group(p, groups[p])

        requests_P = _requests(request, self._policy.stop_ids)
        asyncio.run(self._ask(requests_P, take, lambda: on_progress(len(groups) * group_size)))
        if draws is not None and not self._checked:
            self._check(prompts_P[0] if prompts_P else [], groups.get(0, []), request.decoding)
        return [completion for p in range(len(prompts_P)) for completion in groups[p]]

    async def _ask(
        self,
        requests_P: Sequence[Mapping[str, Json]],
        take: Callable[[int, list[Choice]], None],
        look: Callable[[], None],
    ) -> None:
        async with self._server() as server:
            model = await server.model()
            tasks = {
                asyncio.create_task(server.complete({"model": model, **request})): p
                for p, request in enumerate(requests_P)
            }
            waiting = set(tasks)
            try:
                while waiting:
                    done, waiting = await asyncio.wait(
                        waiting, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                    )
                    for task in done:
                        take(tasks[task], task.result())
                    look()
            finally:
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _load(self, prompts_P: Sequence[Sequence[int]]) -> None:
        """Have the server take the weights as they are now. Returns in every process once it has them."""
        self._updates = None
        weights: dict[str, Tensor] = {}
        lies: set[int] = set()
        ranks = self._policy.ranks

        def keep(name: str, weight: Tensor) -> None:
            # Each in memory of its own: the file format refuses tied ones, and of gathered ones the memory goes.
            own = ranks.alone and weight.data_ptr() not in lies
            lies.add(weight.data_ptr())
            weights[name] = weight.detach().to("cpu", copy=not own).contiguous()

        hand_over(self._policy, keep if ranks.first else quiet)
        if ranks.first:
            asyncio.run(self._send(weights, prompts_P))
        else:
            self._weight_check.follow()
        self._updates, self._checked = self._policy.updates, False

    async def _send(self, weights: Mapping[str, Tensor], prompts_P: Sequence[Sequence[int]]) -> None:
        """Write the weights into a folder of their own, so that nothing read earlier stands for them, and have them loaded."""
        folder = self._weights / f"{_FOLDER}{secrets.token_hex(8)}"
        folder.mkdir(parents=True)
        save_file(dict(weights), folder / "model.safetensors", metadata={"format": "pt"})
        async with self._server() as server:
            emptied = await server.empty()
            await server.load(folder)
            for other in self._weights.glob(f"{_FOLDER}*"):  # this one stays: the server takes it for its model's
                if other != folder:
                    shutil.rmtree(other)
            if emptied is not None:
                await self._weight_check.compare_names(server, emptied, weights)
            await self._weight_check.compare_logprobs(
                server, await server.model(), prompts_P, emptied=emptied is not None
            )

    def make_room(self) -> bool:
        """See `Engine`: the server holds everything."""
        return False

    @torch.no_grad()
    def _check(self, prompt: Sequence[int], group: Sequence[Completion], decoding: Decoding) -> None:
        """Raises RunFailure `vllm_mismatch` if the server draws from another distribution than the policy's.

        Processes whose weights lie in shards check at the same time; one that sampled nothing only helps the others.
        """
        self._checked = True
        if not group:
            self._policy.idle()
            return
        batch = TokenBatch.of([prompt] * len(group), [completion.ids for completion in group], self._policy.device)
        logprob_R_T = self._policy.logprobs(batch, temperature=decoding.temperature).logprob_R_T.cpu()
        apart_R = [
            (own_T[: len(completion.ids)] - torch.tensor(completion.logprobs)).abs()
            for own_T, completion in zip(logprob_R_T, group, strict=True)
        ]
        apart = float(torch.cat(apart_R).mean())
        if not apart <= _FAR:
            raise RunFailure(
                "vllm_mismatch",
                f"The log-probs of the worker's vLLM server are {apart:.2f} nats a token away from the policy's. Start it "
                "with --logprobs-mode processed_logprobs, on the model that the run trains, unquantized, and let no other "
                "worker use it (docs/engines.md). Or set sampling.engine to native.",
            )


def _requests(request: Request, stop_ids: Collection[int]) -> list[dict[str, Json]]:
    """What vLLM is asked for each prompt. What it would take from the model's generation settings is said, and off."""
    decoding, draws = request.decoding, request.draws
    same: dict[str, Json] = {
        "n": 1 if draws is None else request.group_size,  # it refuses several greedy ones
        "max_tokens": decoding.max_new_tokens,
        "temperature": 0.0 if draws is None else decoding.temperature,
        "stop": list(decoding.stop),
        "stop_token_ids": [*sorted(stop_ids)],
        "include_stop_str_in_output": True,
        "logprobs": 0,  # of the drawn token alone
        "return_token_ids": True,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }
    seeds = [None if draws is None else seed_of(draws, request.first_group + p) for p in range(len(request.prompts_P))]
    return [
        {"prompt": list(prompt), "seed": seed, **same} for prompt, seed in zip(request.prompts_P, seeds, strict=True)
    ]


_GONE = 1.0
"""Nats a token, in the mean: a server with other weights is several away. On SmolLM2 bfloat16 is 0.06, and more where the
prompt's tokens are unlikely, which is why this is wider than the bound on what was sampled."""
# The same tokens every time: the ends of the first prompts. Few, since a server holds whole logits for them.
_ROWS, _ROW_TOKENS = 4, 64
# An update is visible if it moves their log-probs by this many times the rounding between worker and server. It was taken
# if the server then is not further away than `_STEADY` times that rounding, or this share of the way. (Where the head alone
# stays behind, as tied weights can, that is a tenth of the way and more.)
_VISIBLE, _STEADY, _SHARE = 16, 4, 1 / 16
# Rounding is taken for at least this; a server as close as `_CLOSE` has the weights, also if none were there before.
_LEAST_ROUNDING, _CLOSE = 1e-6, 1e-4
_NOTHING = hashlib.sha256().hexdigest()
"""The checksum of a weight that the server shows without contents, as a CPU's are that were laid out anew."""


class WeightCheck:
    """Compares log-probs of fixed tokens with the policy's, after each change of weights; raises RunFailure `vllm_mismatch`.

    A server that missed an update is as far away as the update moved the policy. Where rounding is larger than that, as in
    bfloat16, this shows only if the server was emptied before: then what it did not take is zero.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._rows: list[list[int]] = []
        # Of the weights that the server was last seen to have: updates too small to be seen add up until they are.
        self._own_M: Tensor | None = None
        self._rounding = math.inf  # how far apart they were then
        self._remarked = False

    async def compare_names(
        self, server: VllmServer, emptied: Mapping[str, str], weights: Mapping[str, Tensor]
    ) -> None:
        """See that no weight is still what it was in the emptied server."""
        loaded = await server.checksums()
        same = {name.rpartition(":")[2] for name in loaded if loaded[name] == emptied.get(name) != _NOTHING}
        missing = sorted(name for name in same if _belongs_to_weights_of_which_none_is_zero(name, weights))
        if missing:
            raise _mismatch(f"did not take {len(missing)} of the policy's weights, among them {missing[0]}")

    async def compare_logprobs(
        self, server: VllmServer, model: str, prompts_P: Sequence[Sequence[int]], *, emptied: bool
    ) -> None:
        """See that the server is where the policy is now, and not where it was before the last change."""
        if not self._rows:
            self._rows = [list(prompt[-_ROW_TOKENS:]) for prompt in prompts_P if len(prompt) > 1][:_ROWS]
        if not self._policy.ranks.of_first(bool(self._rows)):
            return  # a prompt's first token has no log-prob
        theirs_M = torch.tensor([value for row in self._rows for value in await server.logprobs(model, row)])
        own_M, before_M = self._own_logprobs(), self._own_M
        apart = float((theirs_M - own_M).abs().mean())
        moved = None if before_M is None else float((own_M - before_M).abs().mean())
        if not apart <= _GONE:
            raise _mismatch(
                f"is {apart:.2f} nats a token away from the policy after it was sent its weights: they did not arrive, or it "
                "serves another model, or a quantized one"
            )
        visible = apart <= _CLOSE if moved is None else moved >= _VISIBLE * self._rounding
        if visible and moved is not None and apart > max(_STEADY * self._rounding, _SHARE * moved):
            raise _mismatch(
                f"missed an update, or took a part of it: the log-probs of {len(own_M)} tokens have moved by "
                f"{moved:.2g} nats, and the server's are {apart:.2g} away from where they should be"
            )
        if not visible and not emptied:
            self._remark(apart, moved)
        if visible or before_M is None:
            self._own_M, self._rounding = own_M, max(_LEAST_ROUNDING, apart)

    @torch.no_grad()
    def follow(self) -> None:
        """In every process but the first: pass through the model with it, once it compares log-probs."""
        if self._policy.ranks.of_first(False):
            self._policy.idle()

    @torch.no_grad()
    def _own_logprobs(self) -> Tensor:
        batch = TokenBatch.of([row[:1] for row in self._rows], [row[1:] for row in self._rows], self._policy.device)
        return self._policy.logprobs(batch, temperature=1.0).logprob_R_T[batch.mask_R_T].cpu()

    def _remark(self, apart: float, moved: float | None) -> None:
        """Once: it is the same after most updates."""
        if not self._remarked:
            self._remarked = True
            update = "" if moved is None else f", the last update moved them by {moved:.2g}"
            self._policy.remarks.append(
                f"it cannot be seen whether the vLLM server takes each update: its log-probs are {apart:.2g} nats a token "
                f"away from the policy's{update}, and it has no /weight_checker (docs/engines.md)"
            )


def _belongs_to_weights_of_which_none_is_zero(name: str, weights: Mapping[str, Tensor]) -> bool:
    """Of the same name, or for what the server joined (`qkv_proj.weight`), of the layer's part that it stands in."""
    own = [weights[name]] if name in weights else []
    if not own and name.endswith(".weight"):
        part = name.rsplit(".", 2)[0]
        own = [weight for known, weight in weights.items() if known.startswith(f"{part}.")]
    return bool(own) and all(bool(weight.any()) for weight in own)


def _mismatch(what: str) -> RunFailure:
    return RunFailure(
        "vllm_mismatch",
        f"The worker's vLLM server {what}. Its log may say why; no other worker may use it (docs/engines.md). Then retry: the "
        "run goes on from its last checkpoint. Or set sampling.engine to native.",
    )
