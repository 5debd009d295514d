"""A run as JSON lines: the metrics leave a series at a time, and come to what the interface says of them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import recorded
from acting import GRPO, Actor
from serving import Backend

from backend import export
from backend.contract.base import to_json
from backend.errors import Conflict
from backend.storage.database import Database


def report(backend: Backend, claim: recorded.p.Claim, seq: int, step: int, metrics: dict[str, Any]) -> None:
    sent = recorded.p.Report(attempt=claim.attempt, seq=seq, step=step, metrics=metrics)
    backend.client.report(claim.run_id, sent)


def resumed(backend: Backend) -> int:
    """Two attempts: the second goes on from step 3 of the first one's five, and evaluates again there."""
    run_id = recorded.queue(backend.client, name="schön <b>")
    for attempt, steps in enumerate([range(5), range(3, 9)]):
        claim = backend.client.ask(recorded.p.ClaimRequest(worker=recorded.WORKER)).claim
        assert claim is not None
        start = recorded.p.Start(attempt=claim.attempt, from_step=steps[0], device="cpu")
        backend.client.start(run_id, start)
        for seq, step in enumerate(steps):
            metrics = {"reward": step + attempt / 2, "loss": None if step == 3 else 1e-9, "eval/reward": attempt / 3}
            report(backend, claim, seq, step, metrics)
        recorded.finish(backend.client, run_id, claim, "finished" if attempt else "released")
    return run_id


@pytest.mark.parametrize("rows", [4, 20_000])
def test_the_line_of_metrics_is_what_the_interface_says_of_them_byte_for_byte(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(export, "ROWS", rows)
    run_id = resumed(backend)
    read = backend.client.metrics(run_id).model_dump(exclude_none=True)  # nothing is thinned
    assert [len(series["step"]) for series in read["series"].values()] == [9, 9, 9]
    exported = backend.http.get(f"/api/v1/runs/{run_id}/export").content
    assert exported.split(b"\n")[1].decode() == to_json({"kind": "metrics", "metrics": read})


def test_the_metrics_are_never_held_as_a_whole(backend: Backend) -> None:
    chunks = list(export.lines(backend.services.database, resumed(backend)))
    held = [[name for name in (b'"reward"', b'"loss"', b'"eval/reward"') if name in chunk] for chunk in chunks[1:]]
    assert sorted(map(len, held)) == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("kind", [export.lines, export.groups_table, export.metrics_table])
@pytest.mark.parametrize("read", [1, 2])
def test_an_export_across_a_resume_breaks_off_and_passes_for_no_whole_one(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, kind: Callable[[Database, int], Iterator[bytes]], read: int
) -> None:
    monkeypatch.setattr(export, "PAGE", 2)
    monkeypatch.setattr(export, "ROWS", 2)
    run_id = backend.client.create_run(GRPO).id
    first = Actor(backend.client).begin()
    for step in range(6):
        first.report(step, metrics={"reward": 1.0, "eval/reward": 1.0})
    first.finish("released")
    chunks = kind(backend.services.database, run_id)
    for _ in range(read):
        next(chunks)
    second = Actor(backend.client).begin(from_step=2)
    second.report(2, metrics={"reward": 2.0, "eval/reward": 2.0})
    with pytest.raises(Conflict, match="export it again"):
        list(chunks)
    assert list(kind(backend.services.database, run_id))


def test_a_run_without_metrics_has_their_line(backend: Backend) -> None:
    run_id = recorded.queue(backend.client)
    exported = backend.http.get(f"/api/v1/runs/{run_id}/export").content
    assert exported.split(b"\n")[1] == b'{"kind":"metrics","metrics":{"run_id":%d,"series":{}}}' % run_id
