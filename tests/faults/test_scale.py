"""A run with a million rows: no list and no page grows with it."""

import json
import time
from collections.abc import Mapping
from statistics import quantiles

import pytest
import recorded
from serving import Backend
from sqlalchemy import text

from backend.contract import protocol as p
from backend.queue import reports
from backend.storage.tables import METRIC_WIDTHS
from backend.telemetry import metrics
from backend.telemetry.groups import MAX_STEPS

pytestmark = pytest.mark.slow

NAMES = ("reward", *(f"custom/{number:02}" for number in range(49)))
AT_ONCE = 500  # reports in a transaction
MOST_BYTES = 500_000  # of an answer, however long the run

# What that number of reports would have stored, in one statement each.
VALUES = """
    INSERT INTO metric (run_id, name, step, attempt, value)
    WITH RECURSIVE counted (step) AS (SELECT 0 UNION ALL SELECT step + 1 FROM counted WHERE step + 1 < :steps)
    SELECT :run_id, names.value, step, :attempt, 0.5 FROM counted, json_each(:names) AS names
"""
STRETCHES = """
    INSERT INTO metric_stretch
        (run_id, width, name, start, first_step, last_step, finite, missing, mean, low_step, low, high_step, high)
    SELECT run_id, :width, name, step / :width * :width, min(step), max(step), count(*), 0, 0.5, min(step), 0.5, min(step), 0.5
    FROM metric WHERE run_id = :run_id GROUP BY run_id, name, step / :width
"""

# Lists that cannot be paged through: what bounds each is said beside it.
WITHOUT_A_LIMIT = {
    "/api/v1/metrics": "metrics.VALUES, and 20 runs",
    "/api/v1/lineage": "20 runs, and the forks above each",
    "/api/v1/runs/deletions": "the runs that were just deleted",
    "/api/v1/runs/{run_id}/steps": "MAX_STEPS",
    "/api/v1/runs/{run_id}/checkpoints": "the disk that they lie on",
    "/api/v1/runs/{run_id}/rewards": "reward_texts.MOST",
    "/api/v1/groups/{group_id}/choices": "the pairs of one group",
    "/api/v1/workers": "workers.MOST",
    "/api/v1/workers/use": "workers.HELD",
}


def test_every_list_has_a_limit_or_a_bound_of_its_own(backend: Backend) -> None:
    document = backend.http.get("/api/v1/openapi.json").json()
    lists = {
        path: {one["name"]: one["schema"] for one in operations["get"].get("parameters", ())}
        for path, operations in document["paths"].items()
        if "get" in operations and "/Page_" in str(operations["get"]["responses"]["200"])
    }
    assert {path for path, known in lists.items() if "limit" not in known} == set(WITHOUT_A_LIMIT)
    limits = {path: known["limit"]["maximum"] for path, known in lists.items() if "limit" in known}
    assert limits == {path: 1000 if path.endswith("/logs") else 200 for path in limits}
    run_id = recorded.queue(backend.client)
    for path, limit in limits.items():
        address = path.replace("{run_id}", str(run_id))
        assert backend.http.get(address, params={"limit": limit + 1}).status_code == 422, path


def make(backend: Backend, steps: int) -> int:
    """A run under way with 50 metrics at each step and a group at each of the first MAX_STEPS and some; sent past HTTP, to be quick."""
    services = backend.services
    run_id = recorded.queue(backend.client, "long", budget={"steps": 1_000_000})
    claim = recorded.claim(backend.client, run_id)
    group = recorded.group_of(0, [1.0, 0.0])
    reported = range(min(steps - 1, MAX_STEPS + 100))
    for first in range(0, len(reported), AT_ONCE):
        with services.database.write() as tx:
            received = [
                reports.Received(
                    p.Report(attempt=claim.attempt, seq=step, step=step, groups=[group], metrics={}), f"{step:064}"
                )
                for step in reported[first : first + AT_ONCE]
            ]
            reports.store(tx, run_id, received, services.terms(), services.clock.stamp())
    with services.database.write() as tx:
        tx.execute(
            text(VALUES), {"run_id": run_id, "attempt": claim.attempt, "names": json.dumps(NAMES), "steps": steps - 1}
        )
        for width in METRIC_WIDTHS:
            tx.execute(text(STRETCHES), {"run_id": run_id, "width": width})
    values = dict.fromkeys(NAMES, 0.5)
    backend.client.report(run_id, p.Report(attempt=claim.attempt, seq=steps, step=steps - 1, groups=[], metrics=values))
    return run_id


def size(backend: Backend, address: str, query: Mapping[str, str | int]) -> int:
    """The bytes of an answer, and in passing how long 20 of them take, for docs/reliability.md."""
    seconds: list[float] = []
    for _ in range(20):
        began = time.perf_counter()
        answer = backend.http.get(address, params=query)
        seconds.append(time.perf_counter() - began)
    assert answer.is_success
    print(f"p95 {quantiles(seconds, n=20)[-1] * 1000:7.1f} ms, {len(answer.content):9,} bytes: {address} {query}")  # noqa: T201
    return len(answer.content)


@pytest.mark.thorough
@pytest.mark.parametrize("steps", [300, pytest.param(20_000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_the_pages_of_a_long_run_stay_short(backend: Backend, steps: int) -> None:
    run_id = make(backend, steps)
    run = f"/api/v1/runs/{run_id}"
    whole = backend.client.metrics(run_id).series
    assert set(whole) == set(NAMES)
    assert sum(len(series.step) for series in whole.values()) <= metrics.VALUES
    assert len(backend.client.steps(run_id)) == min(steps - 1, MAX_STEPS)
    deep = min(steps, MAX_STEPS) - 100
    requests: list[tuple[str, dict[str, str | int]]] = [
        ("/api/v1/runs", {"limit": 200}),
        (f"{run}/metrics", {"max_points": 250}),
        (f"{run}/metrics", {"after_step": steps - 10}),
        (f"{run}/groups", {"limit": 200, "cursor": deep}),
        (f"{run}/groups", {"limit": 200, "cursor": deep, "sort": "-reward_std"}),
        (f"{run}/completions", {"limit": 200, "cursor": deep, "sort": "-reward"}),
        (f"{run}/prompts", {"limit": 200}),
        (f"{run}/logs", {"limit": 1000}),
        (f"{run}/health", {}),
        (f"{run}/distribution", {"value": "reward"}),
        (f"{run}/properties", {}),
    ]
    sizes = {f"{address} {query}": size(backend, address, query) for address, query in requests}
    assert max(sizes.values()) < MOST_BYTES, sizes
