"""Whatever is sent, the answer is never that we failed, and it has the one shape."""

import json
from typing import Any

import pytest
from acting import GRPO, SAMPLE, began, group
from drawing import examples, places, put
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import Backend

from backend.contract import protocol as p

NUMBERS = [-1, 0, 1.5, 2**63 - 1, 2**63, -(2**63), 10**400, 1e308, float("nan"), float("inf")]
TEXTS = ["", "\0", "\ud800", "é" * 300]
ODD: list[Any] = [
    None,
    True,
    *NUMBERS,
    *TEXTS,
    [],
    {},
    [[]],
    {"\ud800": 1},
    [[[[]] * 2] * 2] * 2,
    {"a": [float("inf")]},
]
REPORT = p.Report(attempt=1, seq=0, step=0, metrics={"reward": 1.0}, groups=[group()]).model_dump(mode="json")
HEARTBEAT = {"attempt": 1, "worker": "one", "progress": {"phase": "rollout", "done": 1, "total": 2}}
WORKER = {"name": "z", "device": "CPU", "store": "/nowhere", "versions": {"a": "1"}}
CHECKPOINT = {"attempt": 1, "step": 1, "store": "/s", "path": "1", "sha256": "0" * 64, "size_bytes": 0}
BODIES: dict[str, Any] = {
    "/api/v1/runs": {"config": GRPO, "name": "x", "tags": ["a"], "notes": "", "priority": 0, "parent_id": None},
    "/api/v1/runs ": {"config": SAMPLE},
    "/api/v1/sweeps": {"name": "x", "runs": [{"config": GRPO, "name": "y"}]},
    "/api/v1/runs/preflight": {"config": GRPO},
    "/api/v1/runs/1/clone": {"overrides": {"sampling.group_size": 4, "rewards.functions.0.weight": 1.0}, "name": "x"},
    "/api/v1/worker/claim": {"worker": WORKER, "kinds": []},
    "/api/v1/worker/runs/1/start": {"attempt": 1, "from_step": 0, "device": "CPU", "versions": {}},
    "/api/v1/worker/runs/1/heartbeat": HEARTBEAT,
    "/api/v1/worker/runs/1/report": REPORT,
    "/api/v1/worker/runs/1/checkpoint": CHECKPOINT,
    "/api/v1/worker/runs/1/fail": {"attempt": 2, "error": {"code": "x", "message": "y"}, "retryable": True},
}


@pytest.fixture(scope="module")
def busy_backend(shared_backend: Backend) -> Backend:
    """With run 1 in the hands of worker one."""
    began(shared_backend.client)
    return shared_backend


@pytest.mark.slow
@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(data=st.data(), path=st.sampled_from(sorted(BODIES)), odd=st.sampled_from(ODD))
def test_no_body_makes_the_backend_fail(busy_backend: Backend, data: st.DataObject, path: str, odd: Any) -> None:
    body = BODIES[path]
    sent = json.dumps(put(body, data.draw(st.sampled_from(places(body))), odd))
    answer = busy_backend.http.post(path.strip(), content=sent, headers={"Content-Type": "application/json"})
    assert answer.status_code < 500, answer.text
    if answer.is_error:
        assert set(answer.json()["error"]) == {"code", "message", "details"}
    assert busy_backend.http.get("/api/v1/runs?limit=200").status_code == 200, "and what was stored can be read"
    assert busy_backend.http.get("/api/v1/workers").status_code == 200
