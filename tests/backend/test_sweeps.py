"""Sweeps: several runs queued at once, all or none, and what they remain when some of them are gone."""

from pathlib import Path

import pytest
from acting import GRPO, Actor, api_error
from serving import Backend

from backend.contract.base import Json
from backend.contract.client import ApiError
from backend.uploads import jsonl


def bodies(*names: str) -> list[dict[str, Json]]:
    return [{"config": GRPO, "name": name} for name in names]


def test_a_sweep_queues_its_runs_in_the_given_order_and_lists_them(backend: Backend) -> None:
    sweep = backend.client.create_sweep("two", bodies("b", "a"))
    assert (sweep.name, sweep.total, sweep.statuses) == ("two", 2, {"queued": 2})
    assert [run.name for run in sweep.runs] == ["b", "a"]
    assert [backend.client.run(run.id).queue_position for run in sweep.runs] == [1, 2]
    assert {backend.client.run(run.id).sweep_id for run in sweep.runs} == {sweep.id}
    other = backend.client.create_sweep("other", bodies("c"))
    assert backend.client.create_run(GRPO).sweep_id is None
    assert backend.client.clone_run(sweep.runs[0].id, {}).sweep_id is None
    listed = backend.client.runs(sweep=sweep.id).items
    assert [run.id for run in listed] == [run.id for run in reversed(sweep.runs)]
    assert {run.sweep_id for run in backend.client.runs(sweep=other.id, status="queued").items} == {other.id}
    assert backend.client.runs(sweep=99).items == []
    with pytest.raises(ApiError, match="There is no sweep 99"):
        backend.client.sweep(99)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"sampling": {"group_size": 1}}, "runs.2.config.sampling.group_size"),
        ({"model": {"source": "run:9@1"}}, "runs.2.config.model.source"),  # which only the database knows
    ],
)
def test_one_bad_run_is_named_by_index_and_field_and_nothing_is_created(
    backend: Backend, changed: dict[str, Json], field: str
) -> None:
    with api_error(422) as caught:
        backend.client.create_sweep("x", [*bodies("a", "b"), {"config": {"kind": "grpo", **changed}}])
    assert [one["field"] for one in caught.value.details] == [field]  # type: ignore[index,union-attr,call-overload]
    assert backend.client.runs().items == []
    assert backend.client.sweeps().items == []


@pytest.mark.parametrize("count", [0, 201])
def test_a_sweep_has_1_to_200_runs(shared_backend: Backend, count: int) -> None:
    before = len(shared_backend.client.sweeps().items)
    with pytest.raises(ApiError, match="runs: must have at"):
        shared_backend.client.create_sweep("x", bodies("a") * count)
    assert len(shared_backend.client.sweeps().items) == before


def test_the_same_key_makes_one_sweep(backend: Backend) -> None:
    first = backend.client.create_sweep("x", bodies("a"), idempotency_key="k")
    assert backend.client.create_sweep("x", bodies("a"), idempotency_key="k") == first
    with api_error(409, match=f"sweep {first.id} with another body"):
        backend.client.create_sweep("x", bodies("b"), idempotency_key="k")
    assert len(backend.client.runs().items) == 1


def test_sweeps_are_listed_newest_first_with_the_states_of_their_runs(backend: Backend) -> None:
    for number in range(3):
        backend.client.create_sweep(f"sweep {number}", bodies("a", "b"))
    Actor(backend.client).begin()
    first = backend.client.sweeps(limit=2)
    second = backend.client.sweeps(limit=2, cursor=first.next_cursor)
    assert [one.name for one in (*first.items, *second.items)] == ["sweep 2", "sweep 1", "sweep 0"]
    assert second.next_cursor is None
    assert second.items[0].statuses == {"running": 1, "queued": 1}


def test_stopping_a_sweep_stops_what_is_under_way_and_leaves_what_has_ended(backend: Backend) -> None:
    sweep = backend.client.create_sweep("x", bodies("done", "running", "paused", "queued"))
    outside = backend.client.create_run(GRPO)
    Actor(backend.client, "quick").begin().finish()
    trainer = Actor(backend.client, "slow").begin()
    backend.client.command(sweep.runs[2].id, "pause")
    stopped = backend.client.stop_sweep(sweep.id)
    assert stopped.statuses == {"finished": 1, "running": 1, "stopped": 2}
    assert trainer.beat().requested == "stop"
    trainer.finish("stopped")
    assert backend.client.stop_sweep(sweep.id).statuses == {"finished": 1, "stopped": 3}
    assert backend.client.run(outside.id).status == "queued"


def test_a_sweep_is_still_there_when_its_runs_are_deleted(backend: Backend) -> None:
    sweep = backend.client.create_sweep("x", bodies("a", "b"))
    backend.client.stop_sweep(sweep.id)
    backend.client.delete_run(sweep.runs[0].id)
    left = backend.client.sweep(sweep.id)
    assert (left.total, [run.name for run in left.runs]) == (2, ["b"])
    backend.client.delete_run(sweep.runs[1].id)
    assert backend.client.sweep(sweep.id).runs == []
    assert backend.client.sweeps().items[0].total == 2


@pytest.mark.slow
def test_a_sweep_over_an_upload_reads_its_rows_once(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = b'{"prompt": "Calculate 2 + 2 x 6", "answer": "14"}\n{"prompt": "Calculate 2 + 3", "answer": "5"}\n'
    upload = backend.client.upload("sums.jsonl", rows)
    task: dict[str, Json] = {"kind": "dataset", "source": f"upload:{upload.id}", "answer_column": "answer"}
    read: list[Path] = []
    rows_of = jsonl.rows_of
    monkeypatch.setattr(jsonl, "rows_of", lambda path: (read.append(path), rows_of(path))[1])
    assert backend.client.create_sweep("many", [{"config": {**GRPO, "task": task}}] * 200).total == 200
    assert (
        len(read) == 3
    )  # for the split, the references and the chats; which columns lack values was counted when it came
