"""A person's own prompts: rows of an uploaded JSONL file or of a data set on the Hub."""

import json
from collections.abc import Callable

from backend.contract.task import Dataset
from worker.tasks.items import Item, Items, by_digest, digest
from worker.tasks.rows import Row, held_out_keys, prompt_keys, prompt_of, read_rows, require_column, written


def load(task: Dataset, *, fetch_upload: Callable[[int], bytes]) -> Items:
    """The rows as items. The share `held_out` of the distinct prompts is kept for evaluation, chosen by their hash.

    Raises TaskError where the source cannot be read or a row lacks its prompt or answer.
    """
    rows = read_rows(task, fetch_upload)
    require_column(task.prompt_column, rows)
    if task.answer_column is not None:
        require_column(task.answer_column, rows)
    keys = prompt_keys(task.prompt_column, rows)
    evaluated = held_out_keys(keys, task.held_out)
    train: list[Item] = []
    held_out: list[Item] = []
    for key, (number, row) in zip(keys, rows, strict=True):
        (held_out if key in evaluated else train).append(_item(task, number, row))
    return Items(train=train, held_out=by_digest(held_out))


def _item(task: Dataset, number: int, row: Row) -> Item:
    prompt = row[task.prompt_column]
    answer = None if task.answer_column is None else written(row[task.answer_column])
    question, messages = prompt_of(task, number, prompt, template=task.template)
    return Item(
        id=f"dataset:{digest(json.dumps([written(prompt), answer]))}",
        question=question,
        messages=messages,
        answer=answer,
        verifier={"kind": "exact"},
        columns=row,
    )
