"""A person's own data: rows of an upload or of the Hub, checked for their columns, split by their prompts, made into items."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from backend.contract.base import Json
from backend.contract.cells import Cells
from backend.contract.chat import message_problem, prompt_problem, raw_problem
from backend.contract.client import ApiError
from backend.contract.preference import DatasetPairs
from backend.contract.task import (
    Dataset,
    accepted,
    as_text,
    digest,
    filled,
    held_out_keys,
    is_missing,
    missing_text,
    named_sources,
    object_problem,
    row_id,
    source_of,
    template_columns,
    untrained_text,
)
from worker.tasks.items import ChatMessage, Item, Items, Prompted, TaskError, by_digest, chat, system_message

Row = Cells


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
    return Cells(row)


def _unreadable(what: str) -> TaskError:
    return TaskError("dataset_unreadable", f"the uploaded file {what}")


# The library takes anything else for a built-in loader ("json") or a local directory ("a/../../etc"), and reads that.
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")


def read_hub(name: str, subset: str | None, split: str) -> list[tuple[int, Row]]:
    """The rows of a split with their numbers, from 1. Downloads what the library's cache does not hold.

    Raises TaskError: `dataset_unknown`, `dataset_unreachable` or `dataset_unreadable`.
    """
    if not _REPOSITORY.fullmatch(name) or ".." in name:
        raise TaskError(
            "dataset_unknown",
            f"{name!r} is not the name of a data set on the Hub; write owner/name, as in openai/gsm8k",
        )
    import datasets

    try:
        dataset = datasets.load_dataset(f"hf://datasets/{name}", subset, split=split)
        # Dates and the like become text: a row is JSON.
        return [(number, Cells(json.loads(json.dumps(row, default=str)))) for number, row in enumerate(dataset, 1)]
    except datasets.exceptions.DatasetNotFoundError as error:
        raise TaskError(
            "dataset_unknown", f"the data set {name} is not on the Hub, or not open to you: {error}"
        ) from error
    except ConnectionError as error:
        raise TaskError(
            "dataset_unreachable",
            f"the data set {name} cannot be fetched: {error}. Give the worker network access, or upload the rows as JSONL",
        ) from error
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise TaskError("dataset_unreadable", f"the data set {name} cannot be read: {error}") from error


_ROWS_NAMED = 5


def read_rows(data: Dataset | DatasetPairs, fetch_upload: Callable[[int], bytes]) -> list[tuple[int, Row]]:
    """The rows with their numbers, from 1; one at least. Raises TaskError if they cannot be read."""
    kind, _, name = data.source.partition(":")
    if kind == "hub":
        rows = read_hub(name, data.subset, data.split)
    else:
        try:
            rows = read_jsonl(fetch_upload(int(name)))
        except ApiError as error:
            if error.status != 404:
                raise
            raise TaskError("dataset_unknown", f"the uploaded file {name} is gone; upload it again") from error
    if not rows:
        raise TaskError("too_few_items", f"the data set {data.source} has no rows")
    return rows


def require_column(column: str, rows: Sequence[tuple[int, Row]]) -> None:
    """Raises TaskError if some rows lack a value in the column."""
    if not any(column in row for _, row in rows):
        columns = ", ".join(dict.fromkeys(name for _, row in rows for name in row))
        raise TaskError("dataset_columns", f"the data set has no column {column}; its columns are {columns:.500}")
    missing = [number for number, row in rows if is_missing(row.get(column))]
    if missing:
        raise TaskError("dataset_columns", missing_text(column, len(missing), missing[:_ROWS_NAMED]))


def prompt_keys(column: str, rows: Sequence[tuple[int, Row]]) -> list[str]:
    """For each row a hash of its prompt: equal exactly if the prompts are."""
    return [digest(as_text(row[column])) for _, row in rows]


def prompt_of(
    prompted: Prompted,
    number: int,
    prompt: Json,
    *,
    template: str = "{prompt}",
    row: Mapping[str, Json] = MappingProxyType({}),
) -> tuple[str, tuple[ChatMessage, ...] | None]:
    """The question of row `number`, and its chat (None for a raw prompt). Raises TaskError.

    A prompt that is a chat already ends with the user's turn, which the template is put around. The template's other places are
    filled from the `row`.
    """
    if not isinstance(prompt, list):
        question = filled(template, as_text(prompt), row)
        return question, chat(prompted, question)
    problem = raw_problem(number) if prompted.prompt_format == "raw" else prompt_problem(number, prompt)
    if problem is not None:
        raise TaskError("dataset_prompts", problem)
    turns = turns_of(number, prompt)
    turns[-1]["content"] = filled(template, turns[-1]["content"], row)
    return turns[-1]["content"], (*(() if turns[0]["role"] == "system" else system_message(prompted)), *turns)


def turns_of(number: int, messages: Sequence[Json]) -> list[ChatMessage]:
    """The messages of a chat in row `number`. Raises TaskError if one is not a text by a known role."""
    problem = message_problem(number, messages)
    if problem is not None:
        raise TaskError("dataset_prompts", problem)
    turns = [message for message in messages if isinstance(message, dict)]
    return [{"role": str(turn["role"]), "content": as_text(turn["content"])} for turn in turns]


def load_dataset(task: Dataset, *, fetch_upload: Callable[[int], bytes]) -> Items:
    """The rows as items. The share `held_out` of the distinct prompts is kept for evaluation, chosen by their hash.

    Raises TaskError if the source cannot be read or a row lacks its prompt or answer.
    """
    rows = read_rows(task, fetch_upload)
    columns = {name for _, row in rows for name in row}
    others = template_columns(task.template, columns)
    for column in (task.prompt_column, task.answer_column, task.numbers_column, task.source_column, *others):
        if column is not None:
            require_column(column, rows)
    keys = prompt_keys(task.prompt_column, rows)
    evaluated = held_out_keys(keys, task.held_out)
    train: list[Item] = []
    held_out: list[Item] = []
    for key, (number, row) in zip(keys, rows, strict=True):
        item = _item(task, number, row)
        (held_out if key in evaluated else train).append(item)
    named = _naming(task, rows)
    return Items(named(train), named(by_digest(held_out)), _parts(task, train))


def _naming(task: Dataset, rows: Sequence[tuple[int, Row]]) -> Callable[[Sequence[Item]], list[Item]]:
    """Takes the source from all items but those of the sources that have metrics of their own."""
    kept = named_sources((source_of(task.source_column, row) for _, row in rows), task.shares)
    return lambda items: [item if item.source in kept else replace(item, source="") for item in items]


def _item(task: Dataset, number: int, row: Row) -> Item:
    prompt = row[task.prompt_column]
    cell = None if task.answer_column is None else row[task.answer_column]
    verifier: dict[str, Json] = {"kind": "exact"}
    if task.numbers_column is not None:
        cells = (row[task.numbers_column], cell)
        numbers, target = ([int(one) for one in _WHOLE.findall(as_text(part))] for part in cells)
        if not numbers or len(target) != 1:
            text = f"row {number} has no whole numbers in {task.numbers_column}, or not one in {task.answer_column}, the target"
            raise TaskError("dataset_columns", text)
        verifier = {"kind": "countdown", "numbers": list[Json](numbers), "target": target[0]}
    elif several := accepted(cell):
        verifier["accepted"] = list(several)
    elif problem := object_problem(number, str(task.answer_column), cell):
        verifier["problem"] = problem
    question, messages = prompt_of(task, number, prompt, template=task.template, row=row)
    return Item(
        id=row_id(task, row),
        question=question,
        messages=messages,
        answer=None if task.answer_column is None else as_text(cell),
        verifier=verifier,
        columns=row,
        source=source_of(task.source_column, row),
        row=number,
    )


_WHOLE = re.compile(r"-?\d+")


def _parts(task: Dataset, train: Sequence[Item]) -> list[tuple[Sequence[Item], float]]:
    """The items of each source that has a share. Raises TaskError if one of them has none."""
    parts = {name: [item for item in train if item.source == name] for name in task.shares}
    for name, items in parts.items():
        if not items:
            raise TaskError("dataset_sources", untrained_text(name, dict.fromkeys(item.source for item in train)))
    return [(parts[name], share) for name, share in task.shares.items()]
