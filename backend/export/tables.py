"""Groups and metrics of a run as Parquet files, written as they are read: a row group at a time, nothing held as a whole."""

import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backend.export.lines import Reading, live_groups, live_metrics
from backend.storage.database import Database

METRICS = pa.schema([("run_id", pa.int64()), ("name", pa.string()), ("step", pa.int64()), ("value", pa.float64())])
GROUPS = pa.schema(
    [
        *((name, pa.int64()) for name in ("run_id", "attempt", "step", "group_id", "group_index")),
        *((name, pa.string()) for name in ("prompt_id", "prompt", "prompt_text", "answer", "state")),
        *((name, pa.float64()) for name in ("reward_mean", "reward_std")),
        *((name, pa.int64()) for name in ("completion_id", "completion_index", "token_count")),
        *((name, pa.string()) for name in ("text", "finish_reason", "rewards")),
        *(
            (name, pa.float64())
            for name in (
                "reward", "advantage", "logprob_sum", "logprob_sum_after", "kl_mean", "entropy_mean", "ratio_mean",
                "clipped_share",
            )
        ),
    ]
)  # fmt: skip


def groups_table(database: Database, run_id: int) -> Iterator[bytes]:
    """A row for each completion of the live history; `rewards` is JSON, one object for each reward. Raises NotFound at once."""
    reading = Reading(database, run_id)
    return _parquet(GROUPS, (_completions(page) for page in live_groups(reading)))


def metrics_table(database: Database, run_id: int) -> Iterator[bytes]:
    """A row for each value of the live history; null where it was not finite. Raises NotFound at once."""
    return _parquet(METRICS, live_metrics(Reading(database, run_id)))


def _completions(page: list[Any]) -> list[dict[str, Any]]:
    rows = []
    for group in page:
        shared = group.model_dump(include={"run_id", "attempt", "step", *GROUPS.names} - {"rewards"})
        shared |= {"group_id": group.id, "group_index": group.index}
        for one in group.completions:
            row = one.model_dump(include=set(GROUPS.names) - {"rewards"})
            rewards = json.dumps([reward.model_dump() for reward in one.rewards], ensure_ascii=False)
            rows.append(shared | row | {"completion_id": one.id, "completion_index": one.index, "rewards": rewards})
    return rows


def _parquet(schema: pa.Schema, pages: Iterator[list[dict[str, Any]]]) -> Iterator[bytes]:
    sink = _Sink()
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for rows in pages:
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
            yield sink.take()
    yield sink.take()


class _Sink(BytesIO):
    """A file that gives away what was written to it, and still knows its position."""

    def __init__(self) -> None:
        super().__init__()
        self._given = 0

    def tell(self) -> int:
        return self._given + super().tell()

    def take(self) -> bytes:
        """What was written since."""
        data = self.getvalue()
        self._given += len(data)
        self.seek(0)
        self.truncate()
        return data
