"""Chats as people write them: OpenAI's with parts, ShareGPT's, JSON or Python text in a cell, Human and Assistant in a text."""

import ast
import json
import re
import warnings
from contextlib import suppress
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
_SPEAKERS, _CONTENTS = ("role", "from", "speaker"), ("content", "value", "text", "parts")
_HOLDERS = ("messages", "conversations", "conversation", "contents")
_SPEAKER = re.compile(r"(?:^|\n)(Human|Assistant|User|System|HUMAN|ASSISTANT|USER|SYSTEM): ?")
_IN_A_LINE = re.compile(r"(?:^|\s)(Human|Assistant|User|HUMAN|ASSISTANT|USER): ?")
# The marks of templates in which a turn begins, and those in which one ends.
_BEGINS = re.compile(
    r"<\|im_start\|>\s*(\w+)\s*\n|<\|start_header_id\|>\s*(\w+)\s*<\|end_header_id\|>|<start_of_turn>\s*(\w+)\s*\n"
    r"|(\[/?INST\])|###\s*(Instruction|Response):"
)
_ENDS = re.compile(r"<\|im_end\|>|<\|eot_id\|>|<\|begin_of_text\|>|<end_of_turn>|</?s>|<bos>")
_MARKS = _ROLES | {"[inst]": "user", "[/inst]": "assistant", "instruction": "user", "response": "assistant"}
_MARKED = {mark: f"\n\n{role.capitalize()}: " for mark, role in _MARKS.items()}
_ARRAY = re.compile(r"array\((\[[^\[\]]*\])(?:,\s*dtype=\w+)?\)")
# A text or an object, and what numpy prints between two of them: Python would take two texts for one.
_WITHOUT_COMMAS = re.compile(r"""((['"])(?:(?!\2)[^\\]|\\.)*+(?:\2|\\?\Z)|\})(\s+(?=['"{]))?""", re.DOTALL)
LONGEST_WRITTEN = 2**20  # characters


def turns_in(cell: Json) -> Turns:
    """The turns of a chat, of one message, or of a text in which both speak; empty for anything else, also for an image in it."""
    cell = written(cell)
    if isinstance(cell, str):
        return spoken(cell)
    if isinstance(cell, dict):
        inside = next((cell[name] for name in _HOLDERS if name in cell), None)
        return turns_in(inside if isinstance(inside, list) else [cell])
    if not isinstance(cell, list):
        return []
    turns = [turn for message in cell if (turn := _turn(message))]
    return turns if len(turns) == len(cell) else []


def _turn(message: Json) -> dict[str, str] | None:
    """One message; None for an image, a call of a tool, or an unknown role."""
    message = written(message)
    if not isinstance(message, dict) or message.get("tool_calls") or message.get("function_call"):
        return None
    role, content = (
        next((message[name] for name in names if name in message), None) for names in (_SPEAKERS, _CONTENTS)
    )
    role, text = _ROLES.get(str(role).strip().casefold()), _text(content)
    return None if role is None or text is None else {"role": role, "content": text}


def _text(content: Json) -> str | None:
    """A content that is a text, or parts that are."""
    if isinstance(content, str | int | float):
        return str(content)
    if isinstance(content, dict):
        is_text = content.get("type", "text") in ("text", "input_text", "output_text")
        return text if is_text and isinstance(text := content.get("text"), str) else None
    parts = [_text(part) for part in content or ()]
    texts = [part for part in parts if part is not None]
    return "".join(texts) if texts and len(texts) == len(parts) else None


def written(cell: Json) -> Json:
    """What a text has as JSON, or as Python or numpy print it; else the cell. Not to be changed."""
    return _written(cell) if isinstance(cell, str) and cell.lstrip()[:1] in ("[", "{") else cell


@lru_cache(maxsize=4)
def _written(text: str) -> Json:
    if len(text) > LONGEST_WRITTEN:
        return text
    with suppress(ValueError, RecursionError):
        return cast(Json, json.loads(text))
    text = _ARRAY.sub(r"\1", text)
    literal = _WITHOUT_COMMAS.sub(lambda part: part[1] + ", " * (part[3] is not None), text.strip())
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError), warnings.catch_warnings(action="ignore"):
        return cast(Json, ast.literal_eval(literal))
    return text


def spoken(text: str) -> Turns:
    """The turns of a text in which Human and Assistant speak in turn, the human first, also as a template has it; or none."""
    if _BEGINS.search(text):
        text = _BEGINS.sub(lambda mark: _MARKED.get(mark[mark.lastindex or 0].casefold(), "\n\nSystem: "), text)
        text = _ENDS.sub("", text)
    marks = list(_SPEAKER.finditer(text))
    if len(marks) < 2:
        marks = list(_IN_A_LINE.finditer(text))
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
