"""A judge's endpoint: an OpenAI-compatible chat service that the operator named, asked with patience and within bounds."""

import json
import logging
import os
import threading
import time
from dataclasses import dataclass, replace
from typing import Annotated

import httpx
from pydantic import BaseModel, Field, ValidationError

from worker.settings import JudgeSettings

REPLY_BYTES = 2**20
ATTEMPTS = 4
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
EXCERPT = 500
"""Characters of a reply that an error shows."""

logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request's URL


class JudgeFailed(Exception):
    """The endpoint gave no reply; the message says why and never holds the key."""


class _Transient(Exception):
    """Worth another attempt, after `wait` seconds if the endpoint named them."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


@dataclass(frozen=True)
class Reply:
    """What the judge wrote, whether it was cut at max_tokens, and what it cost in tokens."""

    text: str
    cut: bool
    prompt_tokens: int
    completion_tokens: int


class _Message(BaseModel):
    content: str


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


Tokens = Annotated[int, Field(ge=0, le=10**9)]  # bounded: a service may claim more than a float holds


class _Usage(BaseModel):
    prompt_tokens: Tokens = 0
    completion_tokens: Tokens = 0


class _Answer(BaseModel):
    """The part of a chat completion that is read."""

    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: _Usage | None = None


class JudgeEndpoint:
    """Asks one endpoint, from any number of threads. Redirects are not followed, and a reply is bounded in size and time."""

    def __init__(self, name: str, settings: JudgeSettings) -> None:
        self.name, self.settings = name, settings
        self._key = os.environ.get(settings.api_key_env, "") if settings.api_key_env else ""
        self._http = httpx.Client(follow_redirects=False, timeout=settings.timeout_seconds)
        self._closing = threading.Event()
        self._pace = threading.Lock()
        self._next_start = 0.0
        self._failing = False  # it failed a whole series of attempts and has not answered since

    @property
    def identity(self) -> str:
        """What a reply depends on beside the request: the service and its model."""
        return f"{self.settings.url} {self.settings.model}"

    def close(self) -> None:
        """Waits end at once; a request under way ends with its time limit."""
        self._closing.set()
        self._http.close()

    def ask(self, prompt: str, *, max_tokens: int) -> Reply:
        """The judge's reply to one message, at temperature 0.

        A busy or broken service and a broken connection are tried again, a refusal is not. Raises JudgeFailed.
        """
        if self.settings.api_key_env and not self._key:
            raise JudgeFailed(
                f"the worker's environment has no {self.settings.api_key_env}, which GROUPSCOPE_JUDGES names"
            )
        body = {
            "model": self.settings.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0,
        }
        attempts = 1 if self._failing else ATTEMPTS
        for attempt in range(attempts):
            self._wait_for_turn()
            try:
                reply = self._post(body)
            except _Transient as failure:
                if attempt + 1 == attempts:
                    self._failing = True
                    raise JudgeFailed(self._without_key(f"{failure} (tried {attempts} times)")) from None
                self._wait(min(failure.wait if failure.wait is not None else FIRST_WAIT * 2**attempt, LONGEST_WAIT))
            except JudgeFailed as failure:
                raise JudgeFailed(self._without_key(str(failure))) from None
            else:
                self._failing = False
                return replace(reply, text=self._without_key(reply.text))
        raise AssertionError("every attempt returns or raises")

    def _post(self, body: dict[str, object]) -> Reply:
        """A good answer. Raises _Transient or JudgeFailed."""
        headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",  # a small compressed reply may be a huge one
        }
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        url = f"{str(self.settings.url).rstrip('/')}/chat/completions"
        deadline = time.monotonic() + self.settings.timeout_seconds
        content = bytearray()
        try:
            with self._http.stream("POST", url, content=json.dumps(body), headers=headers) as response:
                for chunk in response.iter_raw():
                    content += chunk
                    if len(content) > REPLY_BYTES:
                        raise JudgeFailed(f"its reply is larger than {REPLY_BYTES:,} bytes")
                    if time.monotonic() > deadline:  # each byte came in time, and all of them did not
                        raise _Transient(f"it took longer than {self.settings.timeout_seconds:g} s")
        except httpx.TimeoutException:
            raise _Transient(f"it took longer than {self.settings.timeout_seconds:g} s") from None
        except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: the client was closed meanwhile
            raise _Transient(f"it does not answer: {type(error).__name__}: {error}") from None
        excerpt = content.decode(errors="replace")[:EXCERPT].strip() or "nothing"
        if response.is_success:
            return _read(bytes(content), excerpt)
        said = f"HTTP {response.status_code}: {excerpt}"
        if response.is_redirect:
            raise JudgeFailed(
                f"HTTP {response.status_code}: it redirects, which is not followed; name its final address"
            )
        if response.status_code == httpx.codes.TOO_MANY_REQUESTS or response.is_server_error:
            wait = response.headers.get("Retry-After", "")  # seconds; a date is rare, and then our own patience serves
            raise _Transient(said, float(wait) if wait.isdecimal() else None)
        raise JudgeFailed(said)

    def _wait_for_turn(self) -> None:
        """Requests start no faster than `requests_per_minute`."""
        with self._pace:
            start = max(time.monotonic(), self._next_start)
            self._next_start = start + 60 / self.settings.requests_per_minute
        self._wait(start - time.monotonic())

    def _wait(self, seconds: float) -> None:
        if self._closing.wait(max(0.0, seconds)):
            raise JudgeFailed("the scoring ended before its turn")

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text


def _read(content: bytes, excerpt: str) -> Reply:
    try:
        answer = _Answer.model_validate_json(content)
    except ValidationError:
        raise JudgeFailed(f"its reply is not a chat completion: {excerpt}") from None
    choice, usage = answer.choices[0], answer.usage or _Usage()
    return Reply(choice.message.content, choice.finish_reason == "length", usage.prompt_tokens, usage.completion_tokens)
