"""Every refusal has one shape, says which field and what to do, and is never a failure of ours."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import bombs
import pytest
from acting import GRPO, SAMPLE, api_error, began, group
from serving import Backend

from backend.contract.client import ApiError
from backend.contract.protocol import TraceFile
from backend.contract.stored import put


@pytest.mark.parametrize(
    ("path", "value", "field", "message"),
    [
        ("sampling.group_size", 0, "sampling.group_size", "must be at least 1 (got 0)"),
        ("task", {"kind": "dataset", "source": ""}, "task.source", "choose the data: upload a file"),
        ("task", {"kind": "dataset", "source": "hub:../etc"}, "task.source", "choose the data"),
        ("task", {"kind": "reasoning_gym", "dataset": "É"}, "task.dataset", "must match ^[a-z0-9_]+$ (got 'É')"),
        ("model.dtype", "int3", "model.dtype", "must be 'auto', 'float32' or 'bfloat16' (got 'int3')"),
        ("rewards.functions", [], "rewards.functions", "must have at least 1 entry"),
        ("kind", "poem", "", "kind must be one of"),
        ("optimizer.warmup_steps", 999, "optimizer.warmup_steps", "warm-up of 999 steps is longer than the run of 100"),
    ],
)
def test_a_wrong_configuration_is_refused_by_field(
    shared_backend: Backend, path: str, value: Any, field: str, message: str
) -> None:
    with api_error(422, "invalid") as caught:
        shared_backend.client.create_run(put(GRPO, path, value))  # type: ignore[arg-type]
    details: Any = caught.value.details
    assert [error["field"] for error in details] == [field]
    assert message in details[0]["message"]
    assert caught.value.message == (f"{field}: " if field else "") + details[0]["message"]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ('{"kind": "grpo", "sampling": {"temperature": NaN}}', "sampling.temperature"),
        ('{"kind": "grpo", "sampling": {"temperature": 1e999}}', "sampling.temperature"),
        ('{"kind": "grpo", "\\ud800": 1}', ""),
        ('{"kind": "\\ud800"}', ""),
        ('{"kind": "grpo", "model": {"source": "\\ud800"}}', "model.source"),
    ],
)
def test_a_number_that_json_cannot_carry_and_text_without_utf8_can_be_complained_about(
    shared_backend: Backend, config: str, field: str
) -> None:
    body = f'{{"config": {config}}}'
    answer = shared_backend.http.post("/api/v1/runs", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")
    assert answer.json()["error"]["details"][0]["field"] == field


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        *(("GET", path, 404, "not_found") for path in ("/api/v1/nothing", "/docs", "/redoc", "/openapi.json")),
        ("GET", "/api/v1/runs/7", 404, "not_found"),
        ("GET", "/api/v1/runs/7/metrics", 404, "not_found"),
        ("GET", "/api/v1/runs/7/steps", 404, "not_found"),
        ("GET", "/api/v1/runs/7/groups", 404, "not_found"),
        ("GET", "/api/v1/runs/7/logs", 404, "not_found"),
        ("GET", "/api/v1/runs/7/checkpoints", 404, "not_found"),
        ("GET", "/api/v1/runs/7/checkpoints/1/model.zip", 404, "not_found"),
        ("GET", "/api/v1/runs/7/export", 404, "not_found"),
        ("GET", "/api/v1/runs/7/events", 404, "not_found"),
        ("POST", "/api/v1/runs/7/pause", 404, "not_found"),
        ("POST", "/api/v1/runs/7/explode", 404, "not_found"),
        ("DELETE", "/api/v1/runs/7", 404, "not_found"),
        ("GET", "/api/v1/groups/7", 404, "not_found"),
        ("GET", "/api/v1/completions/7/tokens", 404, "not_found"),
        ("GET", "/api/v1/uploads/7", 404, "not_found"),
        ("GET", "/api/v1/metrics?runs=7", 404, "not_found"),
        ("GET", "/api/v1/sweeps/7", 404, "not_found"),
        ("POST", "/api/v1/sweeps/7/stop", 404, "not_found"),
        ("GET", "/api/v1/runs/7/metrics?width=6", 422, "invalid"),  # no power of two
        ("GET", "/api/v1/metrics?runs=7&names=kl&width=6", 422, "invalid"),
        ("PUT", "/api/v1/runs", 405, "method_not_allowed"),
        ("GET", "/api/v1/runs/x", 422, "invalid"),
        ("GET", "/api/v1/runs/9999999999999999999", 422, "invalid"),
        ("GET", "/api/v1/runs?limit=0", 422, "invalid"),
        ("GET", "/api/v1/runs?limit=201", 422, "invalid"),
        ("GET", "/api/v1/runs?cursor=zzz", 422, "invalid"),
        ("GET", "/api/v1/runs?status=dead", 422, "invalid"),
        ("GET", "/api/v1/metrics?runs=1,x", 422, "invalid"),
        ("GET", "/api/v1/metrics?runs=" + ",".join(map(str, range(1, 22))), 422, "invalid"),
        ("POST", "/api/v1/runs", 422, "invalid"),
        ("POST", "/api/v1/worker/claim", 422, "invalid"),
    ],
)
def test_every_error_has_one_shape(shared_backend: Backend, method: str, path: str, status: int, code: str) -> None:
    answer = shared_backend.http.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert set(answer.json()) == {"error"}
    assert set(answer.json()["error"]) == {"code", "message", "details"}


@pytest.mark.parametrize("body", [b"{", b"[" * 200_000, b"9" * 5000, b'"\xff"', b"\xff\xfe", b'{"config": ' * 50_000])
def test_json_that_cannot_be_read_is_the_senders_mistake(shared_backend: Backend, body: bytes) -> None:
    answer = shared_backend.http.post("/api/v1/runs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert set(answer.json()["error"]) == {"code", "message", "details"}


def test_a_body_over_the_limit_is_refused_while_it_arrives(shared_backend: Backend) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * 65_536

    declared = shared_backend.http.post("/api/v1/runs", content=b" " * (3 * 2**20))
    chunked = shared_backend.http.post("/api/v1/runs", content=endless(), headers={"Content-Type": "application/json"})
    for answer in (declared, chunked):
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "mib"),
    [
        ("uploads?name=x", 4),
        ("uploads/?name=x", 4),
        ("uploads/keep", 32),
        ("uploads/join", 2),
        ("worker/runs/1/report", 64),
        ("worker/runs/1/reports", 64),
    ],
)
def test_reports_uploads_and_the_ids_of_a_band_have_a_larger_limit_and_what_lies_beside_them_has_none(
    start_backend: Callable[..., Backend], path: str, mib: int
) -> None:
    backend = start_backend(max_upload_bytes=4 * 2**20)
    assert backend.http.post(f"/api/v1/{path}", content=b" " * (mib * 2**20)).status_code != 413
    assert backend.http.post(f"/api/v1/{path}", content=b" " * (mib * 2**20 + 1)).status_code == 413


@pytest.mark.slow
def test_a_short_lock_is_waited_for_and_a_long_one_is_said(start_backend: Callable[..., Backend]) -> None:
    backend = start_backend(busy_seconds=1.0)
    with closing(
        sqlite3.connect(backend.home / "groupscope.db", isolation_level=None, check_same_thread=False)
    ) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = backend.http.post("/api/v1/runs", json={"config": GRPO})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "busy")
        assert answer.headers["retry-after"] == "1"
        assert backend.client.runs().items == [], "reading does not wait for writers"
        release = threading.Timer(0.1, other.execute, ["ROLLBACK"])
        release.start()
        backend.client.create_run(GRPO)
        release.join()
    assert len(backend.client.runs().items) == 1


@pytest.mark.slow
def test_a_full_disk_is_said_and_what_was_stored_stays(backend: Backend) -> None:
    actor = began(backend.client)
    actor.report(0)
    with backend.services.database.write() as tx:
        pages = tx.exec_driver_sql("PRAGMA page_count").scalar_one()
        tx.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    big = [group(index, prompt_id="x" * 200) for index in range(500)]
    with api_error(507, "disk_full"):
        actor.report(1, groups=big, metrics={"reward": 1.0})
    assert backend.client.run(actor.run_id).progress.step == 1
    with backend.services.database.write() as tx:
        tx.exec_driver_sql("PRAGMA max_page_count=1000000")
        assert tx.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
    actor.report(1, groups=big, metrics={"reward": 1.0})
    assert backend.client.run(actor.run_id).progress.step == 2


def test_an_error_names_at_most_a_few_fields_in_its_sentence_and_all_in_its_details(shared_backend: Backend) -> None:
    with pytest.raises(ApiError) as caught:
        shared_backend.client.create_run(
            {**SAMPLE, "group_size": 0, "seed": -1, "decoding": {"top_k": -1}, "schema_version": 2, "x": 1}
        )
    assert caught.value.message.endswith("; and 2 more")
    assert isinstance(caught.value.details, list)
    assert len(caught.value.details) == 5


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
    """What it says of its own size is compared with its report before anything of it is read."""
    assert len(trace.data) < 6_000_000
    actor = began(backend.client)
    with api_error(422) as caught:
        actor.report(0, trace=trace)
    details: Any = caught.value.details
    assert details[0]["field"] == field
    assert words in details[0]["message"]
    assert not list(backend.home.rglob("*.parquet*"))
