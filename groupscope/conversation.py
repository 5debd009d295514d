"""What several said in one completion, as a trainer has it: messages become turns."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ASSISTANT = "assistant"


@dataclass
class Turn:
    """What one role said in a completion. `tool` is the tool that the assistant calls with `text` as its arguments, or the one that answers.

    `trained` says whether the loss counts it: by default that of the assistant. `failed` is a tool's answer that is an error.
    """

    role: str
    text: str
    tool: str | None = None
    trained: bool | None = None
    reward: float | None = None
    policy_version: str | None = None
    failed: bool = False

    @property
    def is_trained(self) -> bool:
        """What `trained` says, or its default."""
        return self.role == ASSISTANT if self.trained is None else self.trained

    @property
    def stretch(self) -> str:
        """As it stands in the completion's text."""
        return f"{self.tool}({self.text})" if self.tool is not None and self.role == ASSISTANT else self.text


def turns_of(messages: Sequence[Mapping[str, Any]]) -> list[Turn]:
    """The turns of messages as chat templates take them: `role`, `content` (a text, or parts), `tool_calls`, and a tool's `name` or `tool_call_id`.

    A message may say `trainable`. A call is a turn of its own.
    """
    names: dict[Any, str] = {}  # tools by the id of their call
    return [turn for message in messages for turn in _turns(message, names)]


def _turns(message: Mapping[str, Any], names: dict[Any, str]) -> Iterator[Turn]:
    role, said = str(message.get("role") or "unknown"), text_in(message)
    calls = message.get("tool_calls") or []
    trained = message.get("trainable")
    if said or not calls:
        tool = None
        if role == "tool":
            tool = message.get("name") or names.get(message.get("tool_call_id"))
        yield Turn(role, said, tool, trained)
    for call in calls:
        called = call.get("function") or call
        name, arguments = str(called.get("name") or "a tool"), called.get("arguments")
        names[call.get("id")] = name
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False, default=str)
        yield Turn(role, arguments, name, trained)


def completion_start(messages: Sequence[Mapping[str, Any]]) -> int:
    """The place of the assistant's first message; behind the last, if there is none."""
    return next((at for at, one in enumerate(messages) if one["role"] == ASSISTANT), len(messages))


def text_in(message: Mapping[str, Any]) -> str:
    """What a message says; of its parts those that are text, and of others their kind."""
    content = message.get("content")
    parts = [content] if isinstance(content, str | Mapping) else content or []
    thought = message.get("reasoning_content") or message.get("reasoning")
    said = "".join(map(_part, parts))
    return f"{thought}\n{said}" if isinstance(thought, str) and thought else said


def _part(part: Any) -> str:
    if isinstance(part, Mapping):
        return str(part["text"]) if isinstance(part.get("text"), str) else f"[{part.get('type', 'something')}]"
    return str(part)
