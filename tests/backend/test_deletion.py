"""A deleted run is gone for everybody at once; its rows go in slices, between which readers see nothing by halves."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise

import pytest
from acting import GRPO, Actor, began, group
from fastapi.routing import APIRoute
from large_run import grow
from processes import wait_until
from serving import Backend

from backend.app import ROUTERS
from backend.contract import protocol as p
from backend.contract.client import ApiError
from backend.lifecycle import deletion
from backend.lifecycle.deletion import Remover
from backend.storage.tables import metadata

TABLES = [table for table in metadata.sorted_tables if "run_id" in table.c]


@pytest.fixture
def nothing_is_removed(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Rows of deleted runs stay: each test removes them itself, or looks at what a reader sees of them.

    It stands before `backend`: one that started before would go on removing.
    """
    with monkeypatch.context() as patch:
        patch.setattr(Remover, "advance", lambda _self: None)
        yield patch


def recorded(backend: Backend, name: str) -> Actor:
    """A finished run that has something of everything."""
    sweep = backend.client.create_sweep(name, [{"config": GRPO, "name": name}])
    actor = Actor(backend.client, name).begin()
    for step in range(3):
        groups = [group(index, prompt_id=f"p{index}") for index in range(4)]
        actor.report(step, groups=groups, metrics={"reward": 1.0}, logs=[p.LogLine(message=name)])
    actor.save(1)
    actor.finish()
    assert sweep.runs[0].id == actor.run_id
    for one in backend.client.groups(actor.run_id, step=1).items:
        found = backend.client.group(one.id)
        better, worse = (completion.id for completion in found.completions)
        backend.client.people.bookmark(one.id, "note")
        backend.client.people.thumb(better, "up")
        backend.client.people.choose(one.id, better=better, worse=worse)
    return actor


def rows_of(backend: Backend, run_id: int) -> dict[str, int]:
    with closing(sqlite3.connect(backend.home / "groupscope.db")) as database:
        counted = f"SELECT count(*) FROM {{}} WHERE run_id = {run_id}"
        rows = {table.name: database.execute(counted.format(table.name)).fetchone()[0] for table in TABLES}
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        torn = "SELECT group_id FROM completion GROUP BY group_id HAVING count(*) <> 2"
        assert database.execute(torn).fetchall() == [], "a group without some of its completions"
    return rows


@pytest.mark.usefixtures("nothing_is_removed")
def test_a_deleted_run_is_in_no_list_and_at_no_address_while_its_rows_are_still_there(backend: Backend) -> None:
    kept, gone = recorded(backend, "kept"), recorded(backend, "gone")
    [one, *_] = backend.client.groups(gone.run_id, step=1).items
    [completion, *_] = backend.client.group(one.id).completions
    backend.client.delete_run(gone.run_id)
    assert rows_of(backend, gone.run_id)["completion"] == 24
    assert [run.id for run in backend.client.runs().items] == [kept.run_id]
    assert [run.id for run in backend.client.runs(search="gone").items] == []
    assert [len(backend.client.sweep(sweep.id).runs) for sweep in backend.client.sweeps().items] == [0, 1]
    assert [dict(sweep.statuses) for sweep in backend.client.sweeps().items] == [{}, {"finished": 1}]
    assert {held.run_id for held in backend.client.worker_use()} == {kept.run_id}
    ids = {"run_id": gone.run_id, "group_id": one.id, "completion_id": completion.id, "step": 1}
    ids["other_id"] = kept.run_id
    looked_at = 0
    for route in (route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)):
        if ids.keys() & set(route.param_convertors) and "GET" in route.methods:
            query = {"value": "reward"} if route.path.endswith("/distribution") else {}
            answer = backend.http.get(route.path.format(**ids), params=query)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found"), route.path
            looked_at += 1
    assert looked_at > 15
    for path, body in (
        (f"/api/v1/groups/{one.id}/bookmark", {"note": "x"}),
        (f"/api/v1/completions/{completion.id}/thumb", {"thumb": "up"}),
    ):
        assert backend.http.put(path, json=body).status_code == 404
    for verb in ("pause", "resume", "stop", "retry", "clone"):
        assert backend.http.post(f"/api/v1/runs/{gone.run_id}/{verb}", json={}).status_code == 404
    assert backend.http.get(f"/api/v1/metrics?runs={kept.run_id},{gone.run_id}").status_code == 404
    assert backend.http.delete(f"/api/v1/runs/{gone.run_id}").status_code == 404
    [left] = backend.client.deletions()
    assert (left.run_id, left.run_name, left.groups_left) == (gone.run_id, "gone", 12)


@pytest.mark.usefixtures("nothing_is_removed")
def test_a_deleted_run_gives_its_key_back_and_its_checkpoints_to_nobody(backend: Backend) -> None:
    run = backend.client.create_run(GRPO, idempotency_key="key")
    actor = Actor(backend.client).begin()
    actor.report(0)
    actor.save(1)
    actor.finish()
    backend.client.delete_run(run.id)
    assert backend.client.create_run(GRPO, idempotency_key="key").id != run.id
    with pytest.raises(ApiError, match="has no checkpoint at step 1"):
        backend.client.create_run({**GRPO, "model": {"source": f"run:{run.id}@1"}})


def test_between_any_two_slices_groups_are_whole_and_no_row_hangs_on_nothing(
    nothing_is_removed: pytest.MonkeyPatch, backend: Backend
) -> None:
    kept, gone = recorded(backend, "kept"), recorded(backend, "gone")
    before = rows_of(backend, kept.run_id)
    backend.client.delete_run(gone.run_id)
    nothing_is_removed.undo()
    nothing_is_removed.setattr(deletion, "FIRST_ROWS", 1)
    nothing_is_removed.setattr(deletion, "SLICE_SECONDS", 0.0)  # one row in each
    remover, slices, counts = Remover(backend.services), 0, [rows_of(backend, gone.run_id)]
    while remover.advance() is not None:
        slices += 1
        counts.append(rows_of(backend, gone.run_id))
    assert slices > 20
    assert all(sum(after.values()) < sum(earlier.values()) for earlier, after in pairwise(counts))
    assert set(counts[-1].values()) == {0}
    assert rows_of(backend, kept.run_id) == before
    assert backend.client.deletions() == []
    assert backend.client.create_run(GRPO).id == gone.run_id + 1, "a number is never given twice"
    assert len(backend.client.completions(kept.run_id, search="text 0").items) == 12
    assert len(backend.client.people.choices(backend.client.groups(kept.run_id, step=1).items[0].id)) == 1


def test_a_deletion_that_a_restart_broke_off_goes_on(
    start_backend: Callable[..., Backend], nothing_is_removed: pytest.MonkeyPatch
) -> None:
    first = start_backend()
    gone = recorded(first, "gone")
    folder = first.home / "checkpoints" / f"run-{gone.run_id}"
    folder.mkdir(parents=True)
    (folder / "pairs.jsonl").touch()
    first.client.delete_run(gone.run_id)
    nothing_is_removed.undo()
    again = start_backend()
    wait_until(lambda: not again.client.deletions(), "the rows are removed")
    assert set(rows_of(again, gone.run_id).values()) == {0}
    assert not folder.exists()


@pytest.mark.thorough
@pytest.mark.slow
def test_others_write_between_the_slices_of_a_large_deletion(start_backend: Callable[..., Backend]) -> None:
    backend = start_backend()
    backend.client.command(backend.client.create_run(GRPO, name="large").id, "stop")
    grow(backend.home, 1, 10_240)
    worker = began(backend.client)
    backend.client.delete_run(1)
    seen = []
    while left := backend.client.deletions():
        worker.beat()
        seen.append(left[0].groups_left)
    assert len(set(seen)) > 5, "heartbeats were stored while some rows were gone and others were not"
