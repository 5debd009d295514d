"""What a trace file says of its own size is compared with its report before anything of it is read."""

from typing import Any

import bombs
import pytest
from acting import GRPO, Actor
from serving import Backend

from backend.contract.client import ApiError
from backend.contract.protocol import TraceFile


@pytest.mark.parametrize(
    ("trace", "field", "words"),
    [
        (bombs.many_rows(1_000_000), "trace.rows", "is 1; the file has 1,000,000 rows and the report 2 completions"),
        (bombs.many_rows(1_000_000, 1_000_000), "trace.rows", "the report 2 completions"),
        (bombs.long_lists(1_000_000), "trace.data", "has 1,000,000 values in a column"),
        (bombs.many_columns(40), "trace.data", "has 42 columns"),
        (bombs.many_columns(8_000), "trace.data", "describes itself in more than 1,048,576 bytes"),
    ],
    ids=["rows", "rows that are stated", "lists", "columns", "footer"],
)
def test_a_trace_that_is_larger_than_its_report_is_refused_unread(
    backend: Backend, trace: TraceFile, field: str, words: str
) -> None:
    assert len(trace.data) < 6_000_000
    backend.client.create_run(GRPO)
    actor = Actor(backend.client).begin()
    with pytest.raises(ApiError) as caught:
        actor.report(0, trace=trace)
    assert caught.value.status == 422
    details: Any = caught.value.details
    assert details[0]["field"] == field
    assert words in details[0]["message"]
    assert not list(backend.home.rglob("*.parquet*"))
