"""A prompt or an answer that is a chat: a list of messages, each a text by a known role."""

from collections.abc import Sequence

from backend.contract.base import Json

ROLES = ("system", "user", "assistant")


def message_problem(number: int, messages: Sequence[Json]) -> str | None:
    """What is wrong with the messages of row `number`: one is not a text by a known role."""
    for message in messages:
        turn = message if isinstance(message, dict) else {}
        if turn.get("role") not in ROLES or not isinstance(turn.get("content"), str):
            return f"row {number} has a message that is not a text by {', '.join(ROLES)}: {message!s:.100}"
    return None


def prompt_problem(number: int, messages: Sequence[Json]) -> str | None:
    """Why the chat of row `number` cannot be asked: as above, or its last turn is not the user's."""
    last = messages[-1] if messages else None
    problem = message_problem(number, messages)
    if problem is None and isinstance(last, dict) and last["role"] != "user":
        return f"the chat of row {number} ends with {last['role']}; its last turn must be the user's"
    return problem


def raw_problem(number: int) -> str:
    """Why the chat of row `number` cannot be a raw prompt."""
    return f"the prompt of row {number} is a chat; choose the prompt format chat"
