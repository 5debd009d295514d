"""A person's own prompts: rows of an uploaded JSONL file or of a data set on the Hub."""

import json
from collections.abc import Callable, Sequence

from backend.contract.base import Json, clean
from backend.contract.client import ApiError
from backend.contract.task import Dataset
from worker.tasks.hub import read_hub
from worker.tasks.items import ChatMessage, Item, Items, TaskError, by_digest, chat, digest, system_message
from worker.tasks.jsonl import Row, read_jsonl

_ROLES = ("system", "user", "assistant")
_ROWS_NAMED = 5


def load(task: Dataset, *, fetch_upload: Callable[[int], bytes]) -> Items:
    """The rows as items. The share `held_out` of the distinct prompts is kept for evaluation, chosen by their hash.

    Raises TaskError where the source cannot be read or a row lacks its prompt or answer.
    """
    rows = _rows(task, fetch_upload)
    _require(task.prompt_column, rows)
    if task.answer_column is not None:
        _require(task.answer_column, rows)
    keys = [digest(_text(row[task.prompt_column])) for _, row in rows]
    evaluated = _held_out(keys, task.held_out)
    train: list[Item] = []
    held_out: list[Item] = []
    for key, (number, row) in zip(keys, rows, strict=True):
        (held_out if key in evaluated else train).append(_item(task, number, row))
    return Items(train=train, held_out=by_digest(held_out))


def _held_out(keys: Sequence[str], share: float) -> set[str]:
    """The lowest hashes, one at least where any are asked for: rows added later hardly change who is held out."""
    distinct = sorted(set(keys))
    return set(distinct[: max(1, round(share * len(distinct)))]) if share else set()


def _rows(task: Dataset, fetch_upload: Callable[[int], bytes]) -> list[tuple[int, Row]]:
    kind, _, name = task.source.partition(":")
    if kind == "hub":
        rows = read_hub(name, task.subset, task.split)
    else:
        try:
            rows = read_jsonl(fetch_upload(int(name)))
        except ApiError as error:
            if error.status != 404:
                raise
            raise TaskError("dataset_unknown", f"the uploaded file {name} is gone; upload it again") from error
    if not rows:
        raise TaskError("too_few_items", f"the data set {task.source} has no rows")
    return rows


def _require(column: str, rows: Sequence[tuple[int, Row]]) -> None:
    if not any(column in row for _, row in rows):
        columns = ", ".join(dict.fromkeys(name for _, row in rows for name in row))
        raise TaskError("dataset_columns", f"the data set has no column {column}; its columns are {columns:.500}")
    missing = [number for number, row in rows if row.get(column) in (None, "", [])]
    if missing:
        named = ", ".join(map(str, missing[:_ROWS_NAMED]))
        more = f" and {len(missing) - _ROWS_NAMED} more" if len(missing) > _ROWS_NAMED else ""
        plural = "s" if len(missing) > 1 else ""
        raise TaskError("dataset_columns", f"column {column} is missing in row{plural} {named}{more}")


def _item(task: Dataset, number: int, row: Row) -> Item:
    prompt = row[task.prompt_column]
    answer = None if task.answer_column is None else _text(row[task.answer_column])
    if isinstance(prompt, list):
        messages: tuple[ChatMessage, ...] | None = _conversation(task, number, prompt)
        question = messages[-1]["content"] if messages else ""
    else:
        question = task.template.replace("{prompt}", _text(prompt))
        messages = chat(task, question)
    return Item(
        id=f"dataset:{digest(json.dumps([_text(prompt), answer]))}",
        question=question,
        messages=messages,
        answer=answer,
        verifier={"kind": "exact"},
        columns=row,
    )


def _conversation(task: Dataset, number: int, messages: Sequence[Json]) -> tuple[ChatMessage, ...]:
    """A prompt that is a chat already: it ends with the user's turn, which the template is put around."""
    if task.prompt_format == "raw":
        raise TaskError("dataset_prompts", f"the prompt of row {number} is a chat; choose the prompt format chat")
    turns = [_turn(number, message) for message in messages]
    if turns[-1]["role"] != "user":
        raise TaskError(
            "dataset_prompts",
            f"the chat of row {number} ends with {turns[-1]['role']}; its last turn must be the user's",
        )
    turns[-1]["content"] = task.template.replace("{prompt}", turns[-1]["content"])
    return (*(() if turns[0]["role"] == "system" else system_message(task)), *turns)


def _turn(number: int, message: Json) -> ChatMessage:
    if isinstance(message, dict):
        role, content = message.get("role"), message.get("content")
        if role in _ROLES and isinstance(content, str):
            return {"role": str(role), "content": _text(content)}
    raise TaskError(
        "dataset_prompts",
        f"the prompt of row {number} has a message that is not a text by {', '.join(_ROLES)}: {message!s:.100}",
    )


def _text(value: Json) -> str:
    """The value as it would be written; what cannot be encoded is replaced."""
    return str(clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))
