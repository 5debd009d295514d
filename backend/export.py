"""A run as files, written page by page as it is read, so that a slow reader holds nothing and no file is held as a whole.

JSON lines are {"kind": "run" | "metrics" | "group", <kind>: {…}}; groups and metrics are Parquet files, a row group at a time.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fastapi import APIRouter
from sqlalchemy import Connection, select, tuple_

from backend.answers import Lines, Parquet, Sink, file
from backend.contract.base import Json, to_json
from backend.contract.groups import Group
from backend.errors import Conflict
from backend.runs import store as runs
from backend.services import RowId, ServicesDep
from backend.storage import history
from backend.storage.database import Database
from backend.storage.tables import attempt, metric, prompt_group
from backend.telemetry import groups, token_table
from backend.telemetry.metrics import is_live

PAGE = 50  # groups
ROWS = 20_000  # values of metrics in a page, and completions with their tokens in a part of a table
TOKENS = 500_000  # the same of tokens, each of which has up to 16 values
Chunks = Iterator[bytes]


class Reading:
    """A run that is read in pages, each in a transaction of its own. Raises NotFound at once.

    A page breaks the file off, so that it never passes for whole, if the run was meanwhile deleted, or resumed from before
    what was read: its steps would be there twice.
    """

    def __init__(self, database: Database, run_id: int) -> None:
        self._database, self.run_id = database, run_id
        with database.read() as tx:
            self.run = runs.get(tx, run_id)
            self.parts = history.segments(tx, run_id)
            self._cuts = self._read_cuts(tx)

    @contextmanager
    def page(self) -> Iterator[Connection]:
        """Raises NotFound or Conflict if the rest is not of what was read before."""
        with self._database.read() as tx:
            runs.require(tx, self.run_id)
            if self._read_cuts(tx) != self._cuts:
                raise Conflict(f"Run {self.run_id} was resumed while it was exported; export it again.")
            yield tx

    def _read_cuts(self, tx: Connection) -> list[list[tuple[int, int]]]:
        return [history.cuts(tx, part.run_id) for part in self.parts]


def lines(database: Database, run_id: int) -> Chunks:
    """One object a line. Raises NotFound before the first line."""
    reading = Reading(database, run_id)
    pages = (b"".join(_line("group", one.model_dump(mode="json")) for one in page) for page in live_groups(reading))
    return chain([_line("run", reading.run.model_dump(mode="json"))], _metrics(reading), pages)


def live_groups(reading: Reading) -> Iterator[list[Group]]:
    """The groups of the live history, whole, in pages."""
    last, run_id = 0, reading.run_id
    while True:
        with reading.page() as tx:
            query = (
                select(prompt_group)
                .where(history.of_run(tx, prompt_group, run_id), prompt_group.c.id > last)
                .order_by(prompt_group.c.id)
                .limit(PAGE)
            )
            found = groups.with_completions(tx, tx.execute(query).mappings().all())
        if not found:
            return
        last = found[-1].id
        yield found


def live_metrics(reading: Reading) -> Iterator[list[dict[str, Any]]]:
    """The values of the live history, by name and step, in pages."""
    key = tuple_(metric.c.name, metric.c.step, metric.c.attempt)
    later = metric.alias()
    again = select(1).where(
        *(later.c[name] == metric.c[name] for name in ("run_id", "name", "step")), later.c.attempt > metric.c.attempt
    )
    query = (
        select(metric.c.run_id, metric.c.name, metric.c.step, metric.c.attempt, metric.c.value)
        .join(attempt, history.of_attempt(metric))
        .where(history.in_segments(metric, reading.parts), is_live())
        .where(~again.exists())  # a resumed run evaluates once more where it begins
        .order_by(*key)
        .limit(ROWS)
    )
    page = query
    while True:
        with reading.page() as tx:
            rows = tx.execute(page).mappings().all()
        if not rows:
            return
        yield [{name: row[name] for name in ("run_id", "name", "step", "value")} for row in rows]
        page = query.where(key > tuple_(*(rows[-1][column] for column in ("name", "step", "attempt"))))


def _metrics(reading: Reading) -> Chunks:
    """The one line of the metrics, a series at a time."""
    yield f'{{"kind":"metrics","metrics":{{"run_id":{reading.run_id},"series":{{'.encode()
    values = chain.from_iterable(live_metrics(reading))
    for number, (name, of_name) in enumerate(groupby(values, key=itemgetter("name"))):
        points = list(of_name)
        series = {"step": [point["step"] for point in points], "value": [point["value"] for point in points]}
        yield f"{',' if number else ''}{to_json(name)}:{to_json(series)}".encode()
    yield b"}}}\n"


def _line(kind: str, value: dict[str, Json]) -> bytes:
    return to_json({"kind": kind, kind: value}).encode() + b"\n"


METRICS = pa.schema([("run_id", pa.int64()), ("name", pa.string()), ("step", pa.int64()), ("value", pa.float64())])
GROUPS = pa.schema(
    [
        *((name, pa.int64()) for name in ("run_id", "attempt", "step", "group_id", "group_index")),
        *((name, pa.string()) for name in ("prompt_id", "prompt", "prompt_text", "answer", "state")),
        *((name, pa.float64()) for name in ("reward_mean", "reward_std")),
        *((name, pa.int64()) for name in ("completion_id", "completion_index", "token_count")),
        *((name, pa.string()) for name in ("text", "turns", "finish_reason", "rewards")),
        *(
            (name, pa.float64())
            for name in (
                "reward", "advantage", "logprob_sum", "logprob_sum_after", "kl_mean", "entropy_mean", "ratio_mean",
                "clipped_share",
            )
        ),
    ]
)  # fmt: skip


LISTS = {"turns", "rewards"}  # as JSON
GROUPS_WITH_TOKENS = pa.schema([*GROUPS, *token_table.FIELDS])


def groups_table(database: Database, run_id: int) -> Iterator[bytes]:
    """A row for each completion of the live history; `rewards` and `turns` are JSON, one object for each. Raises NotFound at once."""
    reading = Reading(database, run_id)
    return _parquet(GROUPS, (_completions(page) for page in live_groups(reading)))


def tokens_table(database: Database, home: Path, run_id: int) -> Iterator[bytes]:
    """The same rows with the values of each token as lists; null for completions whose tokens were not kept. Raises NotFound at once."""
    reading = Reading(database, run_id)
    return _written(GROUPS_WITH_TOKENS, _with_tokens(reading, home))


def _with_tokens(reading: Reading, home: Path) -> Iterator[pa.Table]:
    """A table is written once its completions have TOKENS tokens: however long they are, no more lie in the memory."""
    traces = token_table.TokenTable(home)
    rows: list[dict[str, Any]] = []
    values: list[token_table.Values] = []
    count = 0
    for page in live_groups(reading):
        with reading.page() as tx:
            files = token_table.files(tx, page)
        for group in page:
            rows += _completions([group])
            pairs = [(group.index, one.index) for one in group.completions]
            values += traces.of(files.get((group.attempt, group.step)), pairs)
            count += sum(one.token_count for one in group.completions)
            if count >= TOKENS or len(rows) >= ROWS:
                yield _table(rows, values)
                rows, values, count = [], [], 0
    if rows:
        yield _table(rows, values)


def _table(rows: list[dict[str, Any]], values: list[token_table.Values]) -> pa.Table:
    plain = pa.Table.from_pylist(rows, schema=GROUPS)
    return pa.Table.from_arrays([*plain.columns, *token_table.arrays(values)], schema=GROUPS_WITH_TOKENS)


def metrics_table(database: Database, run_id: int) -> Iterator[bytes]:
    """A row for each value of the live history; null if it was not finite. Raises NotFound at once."""
    return _parquet(METRICS, live_metrics(Reading(database, run_id)))


def _completions(page: list[Any]) -> list[dict[str, Any]]:
    rows = []
    for group in page:
        shared = group.model_dump(include={"run_id", "attempt", "step", *GROUPS.names} - LISTS)
        shared |= {"group_id": group.id, "group_index": group.index}
        for one in group.completions:
            row = one.model_dump(include=set(GROUPS.names))
            row |= {name: json.dumps(row[name], ensure_ascii=False) for name in LISTS}
            rows.append(shared | row | {"completion_id": one.id, "completion_index": one.index})
    return rows


def _parquet(schema: pa.Schema, pages: Iterator[list[dict[str, Any]]]) -> Iterator[bytes]:
    return _written(schema, (pa.Table.from_pylist(rows, schema=schema) for rows in pages))


def _written(schema: pa.Schema, tables: Iterator[pa.Table]) -> Iterator[bytes]:
    sink = Sink()
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)
            yield sink.taken()
    yield sink.taken()


router = APIRouter(prefix="/api/v1", tags=["export"])


@router.get("/runs/{run_id}/export", response_class=Lines)
def export_run(services: ServicesDep, run_id: RowId) -> Lines:
    """The run, its metrics and its groups as JSON lines."""
    return file(Lines, f"run-{run_id}.jsonl", lines(services.database, run_id))


@router.get("/runs/{run_id}/export/groups.parquet", response_class=Parquet)
def export_groups(services: ServicesDep, run_id: RowId, tokens: bool = False) -> Parquet:
    """Every completion of the run, with its group, and with `tokens` the values of each token."""
    if tokens:
        table = tokens_table(services.database, services.settings.home, run_id)
        return file(Parquet, f"run-{run_id}-tokens.parquet", table)
    return file(Parquet, f"run-{run_id}-groups.parquet", groups_table(services.database, run_id))


@router.get("/runs/{run_id}/export/metrics.parquet", response_class=Parquet)
def export_metrics(services: ServicesDep, run_id: RowId) -> Parquet:
    """Every value of every metric of the run."""
    return file(Parquet, f"run-{run_id}-metrics.parquet", metrics_table(services.database, run_id))
