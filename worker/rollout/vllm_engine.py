"""A sampling engine on an external vLLM server, which gets the policy's weights through a folder that both see."""

import asyncio
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from backend.contract.base import Json
from backend.contract.training import Decoding
from worker.errors import RunFailure
from worker.policy.logprobs import TokenBatch
from worker.policy.policy import Policy
from worker.rollout.engine import (
    Completion,
    OnGroup,
    OnProgress,
    Request,
    check_lengths,
    check_measures_what_it_draws,
    seed_of,
)
from worker.rollout.vllm_server import Choice, VllmServer
from worker.rollout.weight_check import WeightCheck
from worker.rollout.weights import plain_weights

_LOOK_SECONDS = 0.5
_FOLDER = "groupscope-"
_FAR = 0.15
"""Nats a token, in the mean of a group. On SmolLM2 bfloat16 is 0.02 to 0.08 away, another temperature (1 for 0.7) 0.23 to 0.5."""


class VllmEngine:
    """Samples with a server that the operator started for this worker alone: one request for each prompt, all at once."""

    def __init__(self, policy: Policy, url: str, weights: Path, api_key: str | None) -> None:
        self._policy, self._weights = policy, weights.resolve()
        self._url, self._api_key = url, api_key
        self._updates: int | None = None  # of the weights that the server has
        self._weight_check = WeightCheck(policy)
        self._checked = False

    def sample(
        self,
        request: Request,
        *,
        on_progress: OnProgress = lambda done: None,
        on_group: OnGroup = lambda p, completions: None,
    ) -> list[Completion]:
        """See `Engine`. Log-probs are the server's. Raises RunFailure `vllm_server`, `vllm_mismatch`."""
        check_lengths(self._policy, request)
        check_measures_what_it_draws(request.decoding, request.logprobs)
        prompts_P, group_size, decoding, draws = (
            request.prompts_P,
            request.group_size,
            request.decoding,
            request.draws,
        )
        requests_P = [
            _request(
                prompt,
                decoding,
                completions=1 if draws is None else group_size,  # it refuses several greedy ones
                seed=None if draws is None else seed_of(draws, request.first_group + p),
                stop_ids=self._policy.stop_ids,
            )
            for p, prompt in enumerate(prompts_P)
        ]

        groups: dict[int, list[Completion]] = {}

        def take(p: int, choices: list[Choice]) -> None:
            group = self._completions(choices * group_size if draws is None else choices)
            if draws is not None and not self._checked:
                self._check(prompts_P[p], group, decoding)
            groups[p] = group
            on_group(p, group)

        asyncio.run(self._ask(prompts_P, requests_P, take, lambda: on_progress(len(groups) * group_size)))
        return [completion for p in range(len(prompts_P)) for completion in groups[p]]

    async def _ask(
        self,
        prompts_P: Sequence[Sequence[int]],
        requests_P: Sequence[Mapping[str, Json]],
        take: Callable[[int, list[Choice]], None],
        look: Callable[[], None],
    ) -> None:
        async with VllmServer(self._url, self._api_key) as server:
            model = await server.model()
            if self._updates != self._policy.updates:
                await self._load(server, model, prompts_P)
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

    async def _load(self, server: VllmServer, model: str, prompts_P: Sequence[Sequence[int]]) -> None:
        """Write the weights into a folder of their own, so that nothing read earlier stands for them, and have them loaded."""
        self._updates = None
        folder = self._weights / f"{_FOLDER}{secrets.token_hex(8)}"
        folder.mkdir(parents=True)
        weights = _apart({name: weight.detach().cpu() for name, weight in plain_weights(self._policy)})
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        emptied = await server.empty()
        await server.load(folder)
        for other in self._weights.glob(f"{_FOLDER}*"):  # this one stays: the server takes it for its model's
            if other != folder:
                shutil.rmtree(other)
        if emptied is not None:
            await self._weight_check.compare_names(server, emptied, weights)
        await self._weight_check.compare_logprobs(server, model, prompts_P, emptied=emptied is not None)
        self._updates, self._checked = self._policy.updates, False

    def make_room(self) -> bool:
        """See `Engine`: the server holds everything."""
        return False

    def _completions(self, choices: Sequence[Choice]) -> list[Completion]:
        return [
            Completion(
                list(choice.token_ids),
                list(choice.logprobs.token_logprobs),
                choice.finish_reason,
                self._policy.decode(choice.token_ids),
            )
            for choice in choices
        ]

    @torch.no_grad()
    def _check(self, prompt: Sequence[int], group: Sequence[Completion], decoding: Decoding) -> None:
        """Raises RunFailure `vllm_mismatch` if the server draws from another distribution than the policy's."""
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
        self._checked = True


def _apart(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each in memory of its own: the file format refuses tied ones."""
    lies: set[int] = set()
    separate: dict[str, Tensor] = {}
    for name, weight in weights.items():
        separate[name] = weight.clone() if weight.data_ptr() in lies else weight.contiguous()
        lies.add(weight.data_ptr())
    return separate


def _request(
    prompt: Sequence[int], decoding: Decoding, *, completions: int, seed: int | None, stop_ids: Collection[int]
) -> dict[str, Json]:
    """What vLLM is asked for one prompt. What it would take from the model's generation settings is said, and off."""
    return {
        "prompt": list(prompt),
        "n": completions,
        "max_tokens": decoding.max_new_tokens,
        "temperature": 0.0 if seed is None else decoding.temperature,
        "seed": seed,
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
