"""What a task finds in the rows of an upload: how they are divided, and prompts and references that no run can use."""

from collections import Counter
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from backend.contract import records as r
from backend.contract.chat import message_problem, prompt_problem
from backend.contract.queries import SplitQuery
from backend.contract.task import accepted, as_text, digest, held_out_keys, named_sources, object_problem, source_of
from backend.contract.turns import turns_in, written
from backend.contract.verdicts import is_words, number_in, reference_in
from backend.uploads import jsonl
from backend.uploads.seen import NEARLY_ALL

COUNTED_BYTES = 32 * 2**20  # read in the backend itself: a second or two


class Reading(NamedTuple):
    """The split, the first row (from 1) whose prompt is a chat, and what is wrong with the first chat that cannot be asked."""

    split: r.Split
    first_chat: int | None
    problem: str | None


@lru_cache(maxsize=256)
def read(path: Path, query: SplitQuery, shares: tuple[str, ...] = ()) -> Reading:
    """Read all rows, once: a file's number is never given again. The sources with `shares` are counted before others."""
    rows: list[tuple[str, str]] = []  # the key of the prompt, and the source
    first_chat = problem = None
    for number, row in enumerate(jsonl.rows_of(path), 1):
        rows.append((prompt_key(row, query.prompt_column), source_of(query.source_column, row)))
        prompt = row.get(query.prompt_column)
        if isinstance(prompt, list):
            first_chat = first_chat or number
            problem = problem or prompt_problem(number, prompt)
    held_out = held_out_keys((key for key, _ in rows), query.held_out)
    whole = Counter(key in held_out for key, _ in rows)
    by_source = Counter((source, key in held_out) for key, source in rows)
    sources = {source for source, _ in by_source} if query.source_column is not None else set[str]()
    parts = {
        name: r.RowCounts(train=by_source[name, False], held_out=by_source[name, True])
        for name in named_sources(sources, shares)
    }
    split = r.Split(train=whole[False], held_out=whole[True], sources=parts, source_count=len(sources))
    return Reading(split, first_chat, problem)


def prompt_key(row: jsonl.Row, prompt_column: str) -> str:
    """Equal exactly if the prompts are."""
    return digest(as_text(row.get(prompt_column)))


@lru_cache(maxsize=64)
def references(path: Path, column: str) -> tuple[str | None, tuple[int, str] | None]:
    """Why no answer can be compared with some of a file's, and the first that is not a number, with its row (from 1)."""
    problem = no_number = None
    for number, row in enumerate(jsonl.rows_of(path), 1):
        cell = row.get(column)
        problem = problem or object_problem(number, column, cell)
        if no_number is None:
            ends = [reference_in(text) for text in accepted(cell) or [as_text(cell)]]
            if not all(number_in(end) is not None or is_words(end) for end in ends):
                no_number = number, ends[0]
    return problem, no_number


@lru_cache(maxsize=64)
def holds_odd_chats(path: Path, column: str) -> bool:
    """Whether the first cells of a column are chats in a form that no template reads as it stands."""
    cells = [row[column] for row in islice(jsonl.rows_of(path), 100) if column in row]
    odd = [
        cell
        for cell in cells
        if not isinstance(written(cell), str) and (not isinstance(cell, list) or message_problem(0, cell))
    ]
    return bool(odd) and sum(bool(turns_in(cell)) for cell in odd) >= NEARLY_ALL * len(cells)
