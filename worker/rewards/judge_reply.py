"""What a chat service answers: a text and its cost, or an error, wherever services of different years write them."""

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from pydantic_core import from_json

from backend.contract.base import Json
from backend.contract.stored import get
from worker.rewards.verdict import without_thoughts

MOST_TOKENS = 10**9  # a service may claim more than a float holds
_FILTERED = ("content_filter", "safety", "prohibited_content", "refusal", "sensitive")
_CUT = ("max_tokens", "max_output_tokens", "model_length")  # "length" elsewhere
_BUSY = re.compile(
    r"(?i)rate.?limit|too.many.requests|exhausted|overloaded|unavailable|time.?out|internal|server.error"
)
_WAIT = re.compile(r"(?i)(?:retry.?(?:after|delay|in)(?:.?seconds)?|try again in)\W{1,5}(\d+(?:\.\d+)?)\s*(ms)?")
_UNWANTED = re.compile(
    r"(?i)support|unknown|recogni|expected|extra|permit|allow|deprecat|valid|must|should|only|argument|param"
)
_ITS_VALUE = re.compile(
    r"(?i)too (?:large|long|many|high)|context|at (?:most|least)|exceed|(?:less|greater) than|between"
)


@dataclass(frozen=True)
class Reply:
    """What the judge wrote, whether it was cut at max_tokens, what it cost in tokens, and why it can be no verdict."""

    text: str
    cut: bool
    prompt_tokens: int
    completion_tokens: int
    flaw: str = ""


class ChatAnswer:
    """An answer of a chat service, of any status."""

    def __init__(self, content: bytes) -> None:
        self.text = content.decode(errors="replace")
        self._body: Json = None
        with suppress(ValueError):
            self._body = from_json(content)

    @property
    def spent(self) -> Counter[str]:
        """The tokens of question and reply, with those of thoughts; 0 for what is not a number of tokens."""
        tokens = Counter(prompt_tokens=0, completion_tokens=0)
        for name in tokens:
            with suppress(ValueError):
                count = float(str(get(self._body, f"usage.{name}")))
                tokens[name] = int(count) if 0 <= count <= MOST_TOKENS else 0
        return tokens

    def reply(self) -> Reply:
        """The first choice. Raises ValueError if there is none with a message."""
        message, ended = (get(self._body, f"choices.0.{name}") for name in ("message", "finish_reason"))
        content, refusal, ended = get(message, "content"), get(message, "refusal"), str(ended or "").casefold()
        thoughts = any(get(message, name) for name in ("reasoning_content", "reasoning", "thinking"))
        if isinstance(content, list):
            refusal = refusal or next((said for part in content if (said := get(part, "refusal"))), None)
            parts = [part for part in content if get(part, "type") in (None, "text", "output_text")]
            texts = [part if isinstance(part, str) else get(part, "text") for part in parts]
            content = "".join(text for text in texts if isinstance(text, str))
        if not isinstance(content, str) and (content is not None or not (thoughts or refusal or ended)):
            streams = self.text.lstrip().startswith(("data:", "event:"))
            raise ValueError("a stream, which was not asked for" if streams else "not a chat completion")
        text, flaw = content or "", ""
        said = without_thoughts(text).strip()
        if refusal or ended in _FILTERED:
            flaw = f"is a refusal: {refusal or 'the content filter of the service ended it'}"
        elif ended in ("length", *_CUT):
            thinking = "has no verdict: it was still thinking when max_tokens ended; raise max_tokens"
            flaw = "was cut at max_tokens" if said else thinking
        elif content is None or (text and not said):
            flaw = "has no text" + ", only thoughts" * bool(thoughts or text)
        return Reply(text, ended == "length", **self.spent, flaw=flaw)

    def error(self) -> int | None:
        """The HTTP status that an error within a good answer means; None if there is no error."""
        error = get(self._body, "error") or get(self._body, "choices.0.error")
        if get(self._body, "object") == "error":
            error = self._body
        if not error:
            return 502 if get(self._body, "choices.0.finish_reason") == "error" else None
        codes = [str(get(error, name)) for name in ("code", "status", "status_code")]
        default = 503 if _BUSY.search(str(error)) else 400
        return next((int(code) for code in codes if re.fullmatch("[45][0-9][0-9]", code)), default)

    def wait(self) -> float | None:
        """The seconds that a busy service asks to wait, in its own words."""
        found = _WAIT.search(self.text)
        return float(found[1]) / (1000 if found[2] else 1) if found else None

    def refused(self, sent: Iterable[str]) -> str | None:
        """The first of the parameters that a refusal names, unless it is about the length that was asked for."""
        text = self.text.partition('"input"')[0]  # what follows repeats the request
        named = [match for name in sent for match in [re.search(rf"\b{name}\b", text)] if match]
        first = min(named, key=lambda match: match.start(), default=None)
        if first is None or not _UNWANTED.search(text[max(0, first.start() - 80) : first.end() + 120]):
            return None
        return None if first[0] != "temperature" and _ITS_VALUE.search(text) else first[0]
