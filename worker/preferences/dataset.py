"""Pairs from a person's own data: rows with a prompt, a chosen answer and a rejected one."""

from collections.abc import Callable

from backend.contract.base import Json
from backend.contract.preference import DatasetPairs
from worker.preferences.pairs import Pair, Pairs, Response
from worker.tasks.items import TaskError
from worker.tasks.jsonl import Row
from worker.tasks.rows import held_out_keys, prompt_keys, prompt_of, read_rows, require_column, turns_of, written


def load_pairs(config: DatasetPairs, *, fetch_upload: Callable[[int], bytes]) -> Pairs:
    """The rows as pairs; those with two equal answers are left out. The split is by prompt.

    Raises TaskError where the source cannot be read or a row lacks one of the three.
    """
    rows = read_rows(config, fetch_upload)
    for column in (config.prompt_column, config.chosen_column, config.rejected_column):
        require_column(column, rows)
    keys = prompt_keys(config.prompt_column, rows)
    evaluated = held_out_keys(keys, config.held_out)
    train: list[Pair] = []
    held_out: list[Pair] = []
    for key, (number, row) in zip(keys, rows, strict=True):
        pair = _pair(config, key, number, row)
        if pair.chosen != pair.rejected:
            (held_out if key in evaluated else train).append(pair)
    return Pairs(train, held_out, undecided=len(rows) - len(train) - len(held_out))


def _pair(config: DatasetPairs, key: str, number: int, row: Row) -> Pair:
    question, messages = prompt_of(config, number, row[config.prompt_column])
    chosen, rejected = (
        Response(_answer(number, column, row[column])) for column in (config.chosen_column, config.rejected_column)
    )
    return Pair(f"dataset:{key}", question, messages, chosen, rejected)


def _answer(number: int, column: str, value: Json) -> str:
    """A text; of a chat the last turn, which is the assistant's."""
    if not isinstance(value, list):
        return written(value)
    last = turns_of(number, value)[-1]
    if last["role"] != "assistant":
        text = f"the chat in column {column} of row {number} ends with {last['role']}; it must end with the assistant's answer"
        raise TaskError("dataset_prompts", text)
    return last["content"]
