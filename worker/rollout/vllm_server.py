"""A vLLM server that the worker's operator named: what is asked of it over HTTP, and what it answers.

Verified against vLLM 0.32 (make test-vllm): /v1/completions with token ids in and out, and with VLLM_SERVER_DEV_MODE=1
/collective_rpc (reload_weights with weights_path), /reset_prefix_cache and, where there is one, /weight_checker.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import httpx
from pydantic import BaseModel, Field, ValidationError, model_validator

from backend.contract.base import Json
from worker.errors import RunFailure

CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 3600.0  # the last of a rollout may have waited for all the others
REQUESTS_AT_ONCE = 256
EXCERPT = 500
"""Characters of an answer that an error shows."""


class _Logprobs(BaseModel):
    token_logprobs: list[float]


class Choice(BaseModel):
    """One completion of a prompt."""

    index: int
    token_ids: Annotated[list[int], Field(min_length=1)]
    logprobs: _Logprobs
    finish_reason: Literal["stop", "length"]

    @model_validator(mode="after")
    def _has_a_logprob_for_each_token(self) -> "Choice":
        if len(self.logprobs.token_logprobs) != len(self.token_ids):
            raise ValueError(f"{len(self.logprobs.token_logprobs)} log-probs for {len(self.token_ids)} tokens")
        return self


class _Completions(BaseModel):
    choices: list[Choice]


class _PromptLogprob(BaseModel):
    logprob: float


class _ReadPrompt(BaseModel):
    prompt_logprobs: Annotated[list[dict[int, _PromptLogprob] | None], Field(min_length=1)]


class _ReadPrompts(BaseModel):
    choices: Annotated[list[_ReadPrompt], Field(min_length=1)]


class _Checksums(BaseModel):
    checksums: dict[str, str]


class _Model(BaseModel):
    id: str


class _Models(BaseModel):
    data: Annotated[list[_Model], Field(min_length=1)]


M = TypeVar("M", bound=BaseModel)


class VllmServer:
    """One server, while it is entered. Redirects are not followed.

    Every failure is a RunFailure `vllm_server`. Requests under way when it is left are dropped, and the server ends them.
    """

    def __init__(self, url: str, api_key: str | None, at_once: int = REQUESTS_AT_ONCE) -> None:
        self._url = url.rstrip("/")
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            follow_redirects=False,
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, pool=None),
            limits=httpx.Limits(max_connections=at_once),
        )

    async def __aenter__(self) -> "VllmServer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def model(self) -> str:
        """The name under which it serves its model."""
        return self._read(_Models, await self._send("GET", "/v1/models")).data[0].id

    async def load(self, folder: Path) -> None:
        """Have it take the weights that lie in a folder, and forget what it computed with others."""
        call: Json = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        await self._send("POST", "/collective_rpc", call)
        await self._send("POST", "/reset_prefix_cache")

    async def empty(self) -> dict[str, str] | None:
        """Have it set all its weights to 0, and give their checksums; None if it is of a version that cannot.

        A weight that the next load leaves out is then far from what it should be, in any precision.
        """
        response = await self._ask("POST", "/weight_checker", {"action": "reset"})
        if response.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
            return None
        self._content(response)
        return await self.checksums()

    async def checksums(self) -> dict[str, str]:
        """Of the weights as they lie in the server, by its own names with the rank before the last colon."""
        return self._read(_Checksums, await self._send("POST", "/weight_checker", {"action": "checksum"})).checksums

    async def logprobs(self, model: str, ids: Sequence[int]) -> list[float]:
        """Of each token but the first, given those before it, at temperature 1."""
        body: Json = {"model": model, "prompt": list(ids), "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
        (read, *_) = self._read(_ReadPrompts, await self._send("POST", "/v1/completions", body)).choices
        try:
            found = zip(ids, read.prompt_logprobs, strict=True)
            return [(known or {})[token].logprob for token, known in [*found][1:]]
        except (KeyError, ValueError):
            raise self._failure("answers without the log-probs of a prompt's tokens") from None

    async def complete(self, body: Mapping[str, Json]) -> list[Choice]:
        """The completions of one prompt, in order."""
        answer = self._read(_Completions, await self._send("POST", "/v1/completions", dict(body)))
        if len(answer.choices) != body["n"]:
            raise self._failure(f"gave {len(answer.choices)} completions where {body['n']} were asked for")
        return sorted(answer.choices, key=lambda choice: choice.index)

    async def _send(self, method: str, path: str, body: Json = None) -> bytes:
        return self._content(await self._ask(method, path, body))

    async def _ask(self, method: str, path: str, body: Json) -> httpx.Response:
        try:
            return await self._http.request(method, f"{self._url}{path}", json=body)
        except httpx.HTTPError as error:
            raise self._failure(
                f"does not answer ({type(error).__name__}): see that it runs, and that GROUPSCOPE_VLLM_URL is its address. "
                "Then retry: the run goes on from its last checkpoint"
            ) from error

    def _content(self, response: httpx.Response) -> bytes:
        if response.is_success:
            return response.content
        method, path = response.request.method, response.request.url.path
        said = (
            f"answered {method} {path} with HTTP {response.status_code}: {response.text[:EXCERPT].strip() or 'nothing'}"
        )
        if path.endswith(("/v1/completions", "/v1/models")):
            raise self._failure(said)
        raise self._failure(
            f"did not take the policy's weights. It must serve the model that the run trains, see the folder "
            f"GROUPSCOPE_VLLM_WEIGHTS, and run with VLLM_SERVER_DEV_MODE=1 (docs/engines.md). It {said}"
        )

    def _read(self, shape: type[M], content: bytes) -> M:
        try:
            return shape.model_validate_json(content)
        except ValidationError as error:
            wrong = error.errors(include_url=False)[0]
            where = ".".join(map(str, wrong["loc"]))
            raise self._failure(
                f"answers in another form than vLLM 0.11 and newer do ({where}: {wrong['msg']})"
            ) from None

    def _failure(self, what: str) -> RunFailure:
        address = httpx.URL(self._url).copy_with(userinfo=b"")  # a password is nothing for the run's page
        return RunFailure("vllm_server", f"The vLLM server at {address} {what}.")
