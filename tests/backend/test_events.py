"""The event stream of a run: what happens arrives at once, and a reader who was cut off misses nothing."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from acting import GRPO, Actor
from processes import wait_until
from serving import Backend

from backend.contract import protocol as p

Event = tuple[int, str, Any]


@contextmanager
def listening(backend: Backend, run_id: int, last_event_id: int | None = None) -> Iterator[Iterator[Event]]:
    """The events as they arrive. The first line has been read, so whatever happens from here on will come."""
    headers = {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
    with backend.http.stream("GET", f"/api/v1/runs/{run_id}/events", headers=headers, timeout=10) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines) == ": listening"
        yield _events(lines)


def _events(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line:
            fields[name] = value
        elif "data" in fields:
            yield int(fields["id"]), fields["event"], json.loads(fields["data"])
            fields = {}


def test_what_happens_to_a_run_arrives_in_order_and_what_is_stored_already_not_again(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    with listening(backend, run.id) as events:
        actor = Actor(backend.client).begin()
        for duplicate in (False, True):
            actor.seq = 0
            assert actor.report(0, logs=[p.LogLine(message="hello\nworld", level="warning")]).duplicate is duplicate
        actor.save(1)
        backend.client.command(run.id, "pause")
        actor.finish("paused")
        seen = [next(events) for _ in range(6)]
    assert [(kind, data) for _, kind, data in seen] == [
        ("status", {"status": "running", "requested": "nothing"}),
        ("step", {"step": 0}),
        ("log", {"level": "warning", "message": "hello\nworld"}),
        ("checkpoint", {"step": 1}),
        ("status", {"status": "running", "requested": "pause"}),
        ("status", {"status": "paused", "requested": "nothing"}),
    ]
    numbers = [number for number, _, _ in seen]
    assert numbers == sorted(set(numbers))


def test_a_reader_goes_on_after_the_last_event_it_saw(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    with listening(backend, run.id, last_event_id=0) as events:
        first, kind, data = next(events)
    assert (kind, data["status"]) == ("status", "queued")
    actor = Actor(backend.client).begin()
    for step in range(3):
        actor.report(step)
    with listening(backend, run.id, last_event_id=first) as events:
        missed = [next(events)[1:] for _ in range(4)]
    steps = [("step", {"step": n}) for n in range(3)]
    assert missed == [("status", {"status": "running", "requested": "nothing"}), *steps]


def test_a_stream_has_the_events_of_its_own_run_only_and_ends_with_it(backend: Backend) -> None:
    run, other = backend.client.create_run(GRPO), backend.client.create_run(GRPO)
    with listening(backend, run.id) as events:
        backend.client.command(other.id, "pause")
        backend.client.command(run.id, "stop")
        assert next(events)[1:] == ("status", {"status": "stopped", "requested": "nothing"})
        backend.client.delete_run(run.id)
        assert list(events) == []


def test_streams_leave_room_for_other_requests_and_their_places_are_given_back(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    backend.services.broadcast.most = 2
    with listening(backend, run.id):
        with listening(backend, run.id):
            refused = backend.http.get(f"/api/v1/runs/{run.id}/events")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
            assert refused.headers["retry-after"] == "5"
            assert backend.client.run(run.id).id == run.id
        wait_until(lambda: backend.services.broadcast.open == 1, "the place is free again")
    wait_until(lambda: backend.services.broadcast.open == 0, "both are")
