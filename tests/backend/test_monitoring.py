"""GET /metrics: what a scrape says is so, no label is a client's to choose, and it costs the backend little."""

import math
import re
from collections.abc import Callable

import pytest
from acting import GRPO, Actor, began
from plans import asked_here, plan
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from serving import Backend
from sqlalchemy import text
from test_access import paths
from test_events import listening

from backend.app import create_app
from backend.contract.client import ApiError
from backend.monitoring import NO_ROUTE, WORKER_MESSAGES, registry_of

Values = dict[tuple[str, ...], float]


def scrape(backend: Backend) -> Callable[..., float]:
    """The value of a line by its name and its labels' values, in the order of the labels' names; 0 where there is none."""
    answer = backend.http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=1.0.0; charset=utf-8"
    found: Values = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found[sample.name, *(value for _, value in sorted(sample.labels.items()))] = sample.value
    return lambda *key: found.get(key, 0.0)


def test_runs_and_the_queue_are_counted_as_they_are_and_one_queued_again_has_waited_since(backend: Backend) -> None:
    runs = [backend.client.create_run(GRPO) for _ in range(4)]
    backend.client.command(runs[3].id, "stop")
    Actor(backend.client).begin()
    value = scrape(backend)
    assert [value("groupscope_runs", state) for state in ("queued", "running", "stopped", "failed")] == [2, 1, 1, 0]
    assert 0 < value("groupscope_queue_oldest_seconds") < 600
    backend.client.delete_run(runs[3].id)
    assert scrape(backend)("groupscope_runs", "stopped") == 0
    for one in runs[1:3]:
        backend.client.command(one.id, "stop")
    assert scrape(backend)("groupscope_queue_oldest_seconds") == 0
    with backend.services.database.write() as tx:  # a year ago, as far as anybody can tell
        for table in ("run", "run_event"):
            tx.execute(text(f"UPDATE {table} SET created_at = '2025-01-01 00:00:00.000000'"))
    backend.client.command(runs[1].id, "retry")
    assert 0 < scrape(backend)("groupscope_queue_oldest_seconds") < 600


def test_workers_are_alive_until_they_are_silent(backend: Backend) -> None:
    name = 'one "quoted"\\n\nline }'
    Actor(backend.client, name=name).claim()
    value = scrape(backend)
    assert [value("groupscope_workers", state) for state in ("alive", "silent")] == [1, 0]
    backend.clock.now += 100
    value = scrape(backend)
    assert [value("groupscope_workers", state) for state in ("alive", "silent")] == [0, 1]
    assert value("groupscope_worker_silence_seconds", name) == 100


def test_messages_of_workers_are_counted_by_whether_they_were_accepted(backend: Backend) -> None:
    value = scrape(backend)
    assert {value("groupscope_worker_messages_total", message, "refused") for message in WORKER_MESSAGES} == {0}
    actor = began(backend.client)
    actor.beat()
    actor.report(0)
    actor.report(1)
    actor.attempt += 1
    for late in (actor.beat, lambda: actor.report(2)):
        with pytest.raises(ApiError, match="Attempt 2"):
            late()
    value = scrape(backend)
    for message, accepted in (("heartbeat", 1), ("report", 2)):
        assert value("groupscope_worker_messages_total", message, "accepted") == accepted
        assert value("groupscope_worker_messages_total", message, "refused") == 1


def test_requests_are_counted_by_template_never_by_what_a_client_wrote(backend: Backend) -> None:
    for number in range(20):
        backend.http.get(f"/api/v1/runs/{number + 1000}")
        backend.http.get(f"/nothing/{number}", headers={"Authorization": f"Bearer x{number}"})
        backend.http.get(f"/nothing/{number}")
        backend.http.request(f"METHOD{number}", "/api/v1/runs")
    backend.http.get("/healthz", headers={"Host": "evil.example"})
    value = scrape(backend)
    counted = "groupscope_http_requests_total"  # method, route, status
    assert value(counted, "GET", "/api/v1/runs/{run_id}", "404") == 20
    assert value(counted, "GET", NO_ROUTE, "401") == 20
    assert value(counted, "GET", NO_ROUTE, "404") == 20
    assert value(counted, "GET", NO_ROUTE, "400") == 1
    assert value(counted, "other", "/api/v1/runs", "405") == 20
    assert value("groupscope_http_answer_seconds_count", "GET", "/api/v1/runs/{run_id}") == 20
    lines = backend.http.get("/metrics").text
    routes = set(re.findall(r'route="([^"]*)"', lines))
    known = {re.sub(r"{\w+}", "1", route) for route in routes - {NO_ROUTE}}
    assert known <= set(paths(create_app(backend.services.settings)))
    labels = "".join(re.findall(r"{[^\n]*}", lines))
    assert not re.search(r"METHOD|nothing|100\d|evil", labels)


def test_open_streams_sizes_and_the_build_are_there(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    with listening(backend, run.id):
        value = scrape(backend)
    assert value("groupscope_event_streams") == 1
    assert value("groupscope_event_streams_most") >= 32
    assert value("groupscope_database_bytes") == (backend.home / "groupscope.db").stat().st_size
    assert value("groupscope_wal_bytes") > 0
    assert 0 < value("groupscope_home_free_bytes") < value("groupscope_home_disk_bytes") < math.inf
    assert value("process_open_fds") > 3
    assert 'groupscope_build_info{python="' in backend.http.get("/metrics").text


def test_a_scrape_waits_for_no_writer_and_scans_no_table_that_grows_with_training(backend: Backend) -> None:
    for _ in range(3):
        backend.client.create_run(GRPO)
    Actor(backend.client).begin().report(0)
    database = backend.services.database
    with database.write():  # somebody else has the lock
        assert scrape(backend)("groupscope_runs", "queued") == 2
    with asked_here(database.reader) as asked:
        generate_latest(registry_of(backend.services))
    with database.read() as tx:
        plans = [step for one in asked for step in plan(tx, *one)]
    assert len(asked) >= 4
    allowed = ("SCAN run USING COVERING INDEX", "SCAN worker")  # a few bytes for each run; a row for each worker's name
    assert [step for step in plans if step.startswith("SCAN") and not step.startswith(allowed)] == []
