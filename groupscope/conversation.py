"""What several said in one completion, as a trainer has it: messages become turns."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

ASSISTANT = "assistant"
LONGEST_NAME = 200  # of a role or a tool, in characters


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


def turns_of(messages: Any, names: dict[str, str] | None = None) -> list[Turn]:
    """The turns of messages as chat templates take them, or of OpenAI's own objects: `role`, `content` (a text, or parts),
    `tool_calls`, a tool's `name` or `tool_call_id`, `trainable`. A call is a turn of its own; `names` are tools by calls' ids.

    Raises nothing: what is not understood is a turn of the role `unknown`, as it stands.
    """
    found: list[Turn] = []
    names = {} if names is None else names
    for message in _listed(messages):
        try:
            found += list(_turns(_fields(message), names))
        except Exception:  # noqa: BLE001 — whatever a script hands over, its training goes on
            found.append(Turn("unknown", _shown(message)))
    return found


def _listed(found: Any) -> list[Any]:
    one = isinstance(found, str | Mapping) or any(hasattr(found, name) for name in ("role", "function", "model_dump"))
    try:
        return [found] if one else list(() if found is None else found)
    except Exception:  # noqa: BLE001 — as above
        return [found]


def _fields(message: Any) -> Any:
    """By their names; of an object its own, of OpenAI's choice those of its message. None of what has none."""
    try:
        if not isinstance(message, Mapping):
            message = message.model_dump() if hasattr(message, "model_dump") else vars(message)
        return message if "role" in message or not message.get("message") else _fields(message["message"])
    except Exception:  # noqa: BLE001 — as above
        return None


def _shown(thing: Any) -> str:
    try:
        return str(thing)
    except Exception:  # noqa: BLE001 — as above
        return f"[{type(thing).__name__}]"


def _turns(message: Mapping[str, Any], names: dict[str, str]) -> Iterator[Turn]:
    role, said = str(message.get("role") or "unknown")[:LONGEST_NAME], text_in(message)
    calls = [call for name in ("tool_calls", "function_call") for call in _parsed(message.get(name))]
    trained = said_so if isinstance(said_so := message.get("trainable"), bool) else None
    if said or not calls:
        tool = None
        if role in ("tool", "function"):
            tool = message.get("name") or names.get(str(message.get("tool_call_id")))
        yield Turn(role, said, None if tool is None else str(tool)[:LONGEST_NAME], trained)
    for call in calls:
        called = _fields(call.get("function") or call)
        name = str(called.get("name") or "a tool")[:LONGEST_NAME]
        names[str(call.get("id"))] = name
        arguments = called.get("arguments", None if "name" in called else call)
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False, default=str)
        yield Turn(role, arguments, name, trained)


def _parsed(found: Any) -> list[Mapping[str, Any]]:
    if isinstance(found, str):
        with suppress(ValueError):
            found = json.loads(found)
    return [_fields(call) or {"arguments": _shown(call)} for call in _listed(found or None)]


def completion_start(messages: Sequence[Any]) -> int:
    """The place of the assistant's first message; behind the last, if there is none."""
    return next((at for at, one in enumerate(messages) if (_fields(one) or {}).get("role") == ASSISTANT), len(messages))


def text_in(message: Any) -> str:
    """What a message says; of its parts those that are text, and of others their kind. Anything else stands as it is."""
    if (fields := _fields(message)) is None:
        return _shown(message)
    content = fields.get("content")
    parts = [content] if isinstance(content, str | Mapping) else _listed(content)
    thought = fields.get("reasoning_content") or fields.get("reasoning")
    said = "".join(map(_part, parts))
    return f"{thought}\n{said}" if isinstance(thought, str) and thought else said


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if (fields := _fields(part)) is None:
        return _shown(part)
    return fields["text"] if isinstance(fields.get("text"), str) else f"[{fields.get('type', 'something')}]"
