"""Uploaded JSONL files: one JSON object in each line."""

import json

from backend.contract.base import Json
from worker.tasks.items import TaskError

Row = dict[str, Json]


def read_jsonl(content: bytes) -> list[tuple[int, Row]]:
    """The rows with their line numbers, from 1; empty lines are skipped.

    Raises TaskError (`dataset_unreadable`) that names the line.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unreadable(f"is not UTF-8 text (byte {error.start})") from None
    return [(number, _row(number, line)) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _row(number: int, line: str) -> Row:
    try:
        row: Json = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"has no JSON in line {number}: {error}") from None
    if not isinstance(row, dict):
        raise _unreadable(f"has a {type(row).__name__} in line {number}; each line must hold one JSON object")
    return row


def _unreadable(what: str) -> TaskError:
    return TaskError("dataset_unreadable", f"the uploaded file {what}")
