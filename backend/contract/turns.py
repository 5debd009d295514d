"""Chats as people write them: OpenAI's with parts, ShareGPT's, JSON or Python text in a cell, Human and Assistant in a text."""

import ast
import json
import re
from functools import lru_cache
from typing import cast

from backend.contract.base import Json

Turns = list[dict[str, str]]
"""Each with `role`, one of system, user, assistant, and `content`, a text."""

_ROLES = {
    "system": "system", "developer": "system",
    "user": "user", "human": "user", "prompter": "user",
    "assistant": "assistant", "gpt": "assistant", "model": "assistant", "bot": "assistant", "chatgpt": "assistant",
    "ai": "assistant",
}  # fmt: skip
_NAMES = (
    ("role", "content"),
    ("from", "value"),
    ("role", "value"),
    ("from", "content"),
    ("role", "text"),
    ("speaker", "text"),
)
_HOLDERS = ("messages", "conversations", "conversation")
_SPEAKER = re.compile(r"(?:^|\n\n|\n)(Human|Assistant|User|System): ?")
LONGEST_WRITTEN = 2**20
"""Characters of a chat that is written as a text."""


def turns_in(cell: Json) -> Turns:
    """The turns of a chat, of one message, or of a text in which both speak; empty for anything else, also for an image in it."""
    if isinstance(cell, str):
        if cell.lstrip()[:1] in ("[", "{"):
            return turns_in(found) if not isinstance(found := written(cell), str) else []
        return spoken(cell)
    if isinstance(cell, dict):
        inside = next((cell[name] for name in _HOLDERS if name in cell), None)
        return turns_in(inside if isinstance(inside, list) else [cell])
    if not isinstance(cell, list):
        return []
    turns = [_turn(message) for message in cell]
    return [turn for turn in turns if turn is not None] if all(turns) else []


def _turn(message: Json) -> dict[str, str] | None:
    """One message; None for an image, a call of a tool, or an unknown role."""
    if isinstance(message, str):
        message = written(message)
    if not isinstance(message, dict) or message.get("tool_calls") or message.get("function_call"):
        return None
    names = next((names for names in _NAMES if names[0] in message and names[1] in message), None)
    role = None if names is None else _ROLES.get(str(message[names[0]]).strip().casefold())
    content = None if names is None else _text(message[names[1]])
    return None if role is None or content is None else {"role": role, "content": content}


def _text(content: Json) -> str | None:
    """A content that is a text, or parts that are."""
    if isinstance(content, str | int | float):
        return str(content)
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list) or not content:
        return None
    texts = [one if isinstance(one, str) else _part(one) for one in content]
    return None if any(text is None for text in texts) else "".join(text or "" for text in texts)


def _part(part: Json) -> str | None:
    if not isinstance(part, dict) or part.get("type", "text") not in ("text", "input_text", "output_text"):
        return None
    return text if isinstance(text := part.get("text"), str) else None


@lru_cache(maxsize=4)
def written(text: str) -> Json:
    """What is written as JSON, or as Python or numpy print it; else the text. Not to be changed."""
    if len(text) > LONGEST_WRITTEN:
        return text
    try:
        return cast(Json, json.loads(text))
    except (ValueError, RecursionError):
        pass
    inside = text.strip().removeprefix("array(").removesuffix(", dtype=object)")
    for literal in (inside, re.sub(r"\}\s+\{", "}, {", inside)):  # numpy prints no commas between objects
        try:
            return cast(Json, ast.literal_eval(literal))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            pass
    return text


def spoken(text: str) -> Turns:
    """The turns of a text in which Human and Assistant speak in turn, the human first; empty for any other text."""
    marks = list(_SPEAKER.finditer(text))
    if len(marks) < 2 or text[: marks[0].start()].strip():
        return []
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    turns = [
        {"role": _ROLES[mark[1].casefold()], "content": text[mark.end() : end].strip()}
        for mark, end in zip(marks, ends, strict=True)
    ]
    talk = [turn["role"] for turn in turns if turn["role"] != "system"]
    alternating = all(role == ("user", "assistant")[place % 2] for place, role in enumerate(talk))
    return turns if alternating and len(talk) > 1 else []
