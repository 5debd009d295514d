"""How the rows of an upload divide into those that are trained on and those that are held out."""

from collections import Counter
from functools import lru_cache
from pathlib import Path

from backend.contract import records as r
from backend.contract.queries import SplitQuery
from backend.contract.task import as_text, digest, held_out_keys, named_sources, source_of
from backend.uploads import jsonl

COUNTED_BYTES = 32 * 2**20
"""The largest upload whose rows are counted for an answer: this takes a second or two."""


@lru_cache(maxsize=256)
def split(path: Path, query: SplitQuery) -> r.Split:
    """How many rows of an upload's file go where, in all and of each source; a file's number is never given again."""
    rows = [(key_of(row, query.prompt_column), source_of(query.source_column, row)) for row in jsonl.rows_of(path)]
    held_out = held_out_keys((key for key, _ in rows), query.held_out)
    whole = Counter(key in held_out for key, _ in rows)
    by_source = Counter((source, key in held_out) for key, source in rows)
    sources = {source for source, _ in by_source} if query.source_column is not None else set[str]()
    parts = {
        name: r.RowCounts(train=by_source[name, False], held_out=by_source[name, True])
        for name in named_sources(sources)
    }
    return r.Split(train=whole[False], held_out=whole[True], sources=parts, source_count=len(sources))


def key_of(row: jsonl.Row, prompt_column: str) -> str:
    """What decides whether a row is held out: rows with one prompt go one way."""
    return digest(as_text(row.get(prompt_column)))
