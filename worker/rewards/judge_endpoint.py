"""A judge's endpoint: an OpenAI-compatible chat service that the operator named, asked with patience and within bounds."""

import json
import logging
import os
import threading
import time
from collections import Counter

import httpx

from worker.rewards.judge_reply import ChatAnswer, Reply
from worker.settings import JudgeSettings

REPLY_BYTES = 2**20
ATTEMPTS = 4
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
EXCERPT = 500
"""Characters of a reply that an error shows."""

logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request's URL
log = logging.getLogger(__name__)


class JudgeFailed(Exception):
    """The endpoint gave no reply; the message says why and never holds the key. `spent` are the tokens that were paid for."""

    def __init__(self, message: str, spent: Counter[str] | None = None, wait: float | None = None) -> None:
        super().__init__(message)
        self.spent, self.wait = spent or Counter[str](), wait


class _Transient(JudgeFailed):
    """Worth another attempt, after `wait` seconds if the endpoint named them."""


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
        self._refused = set[str]()  # names of parameters
        self._first, self._settled = threading.Lock(), threading.Event()

    @property
    def identity(self) -> str:
        """What a reply depends on beside the request: the service, its model, and a temperature that the operator set."""
        temperature = self.settings.temperature
        return f"{self.settings.url} {self.settings.model}" + (f" at {temperature}" if temperature != 0 else "")

    def close(self) -> None:
        """Waits end at once; a request under way ends with its time limit."""
        self._closing.set()
        self._settled.set()
        self._http.close()

    def ask(self, prompt: str, *, max_tokens: int) -> Reply:
        """The judge's reply to one message.

        A busy or broken service and a broken connection are tried again, a refusal is not, unless it is of a parameter: that one
        gets its other name, or is left out from then on. Raises JudgeFailed.
        """
        if self.settings.api_key_env and not self._key:
            raise JudgeFailed(
                f"the worker's environment has no {self.settings.api_key_env}, which GROUPSCOPE_JUDGES names"
            )
        if not self._first.acquire(blocking=False):  # the first goes alone: what it learns, the others need not
            self._settled.wait(self.settings.timeout_seconds)
        attempts, spent = 1 if self._failing else ATTEMPTS, Counter[str]()
        for attempt in range(attempts):
            try:
                reply = self._post(prompt, max_tokens)
            except JudgeFailed as failure:
                spent.update(failure.spent)
                if not isinstance(failure, _Transient):
                    raise JudgeFailed(self._without_key(str(failure)), spent) from None
                if attempt + 1 == attempts:
                    self._failing = True
                    raise JudgeFailed(self._without_key(f"{failure} (tried {attempts} times)"), spent) from None
                self._wait(min(failure.wait if failure.wait is not None else FIRST_WAIT * 2**attempt, LONGEST_WAIT))
            else:
                self._failing = False
                spent.update(prompt_tokens=reply.prompt_tokens, completion_tokens=reply.completion_tokens)
                text, flaw = self._without_key(reply.text), self._without_key(reply.flaw)
                return Reply(text, reply.cut, **spent, flaw=flaw)
        raise AssertionError("every attempt returns or raises")

    def _post(self, prompt: str, max_tokens: int) -> Reply:
        """A good answer, asked with what was not refused. Raises _Transient or JudgeFailed."""
        limits = dict.fromkeys([self.settings.max_tokens_parameter, "max_tokens", "max_completion_tokens"])
        left = [name for name in limits if name not in self._refused]
        parameters: dict[str, float] = dict.fromkeys(left[:1], max_tokens)
        if self.settings.temperature is not None and "temperature" not in self._refused:
            parameters["temperature"] = self.settings.temperature
        message = {"role": "user", "content": prompt}
        try:
            self._wait_for_turn()
            response, content = self._send({"model": self.settings.model, "messages": [message], **parameters})
            answer, status = ChatAnswer(content), response.status_code
            excerpt = answer.text[:EXCERPT].strip() or "nothing"
            said = f"HTTP {status}: {excerpt}"
            if response.is_success:
                if (error := answer.error()) is None:
                    try:
                        return answer.reply()
                    except ValueError as reason:
                        raise JudgeFailed(f"its reply is {reason}: {excerpt}", answer.spent) from None
                status, said = error, f"HTTP {status} with an error in it: {excerpt}"
            if status in (400, 422) and (name := answer.refused(parameters)):
                if name not in self._refused:
                    log.warning("the judge %r refuses %s: it gets its other name or is left out", self.name, name)
                self._refused.add(name)
                return self._post(prompt, max_tokens)
        finally:
            self._settled.set()
        if response.is_redirect:
            raise JudgeFailed(f"HTTP {status}: it redirects, which is not followed; name its final address")
        if status == httpx.codes.TOO_MANY_REQUESTS or status >= 500:
            wait = response.headers.get("Retry-After", "")  # seconds; a date is rare, and then our own patience serves
            raise _Transient(said, answer.spent, float(wait) if wait.isdecimal() else answer.wait())
        raise JudgeFailed(said, answer.spent)

    def _send(self, body: dict[str, object]) -> tuple[httpx.Response, bytes]:
        """An answer of any status. Raises _Transient or JudgeFailed."""
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
        return response, bytes(content)

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
