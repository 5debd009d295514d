"""What each worker held, and until when it was heard of."""

from datetime import timedelta

from acting import GRPO, Actor
from serving import Backend

from backend.storage.tables import attempt


def queue(backend: Backend, name: str) -> int:
    return backend.client.create_run(GRPO, name=name).id


def test_a_run_under_way_is_held_until_it_ends(backend: Backend) -> None:
    run_id = queue(backend, "mine")
    actor = Actor(backend.client, "laptop").begin()
    [held] = backend.client.worker_use()
    assert (held.worker, held.run_id, held.run_name, held.end) == ("laptop", run_id, "mine", None)
    actor.beat()
    [beaten] = backend.client.worker_use()
    assert held.since == beaten.since < held.until or held.since == held.until
    assert beaten.until > held.until
    actor.finish()
    [ended] = backend.client.worker_use()
    assert ended.end == "finished"
    assert ended.until > beaten.until


def test_a_lost_run_was_held_until_its_worker_was_last_heard_of(backend: Backend) -> None:
    queue(backend, "mine")
    Actor(backend.client, "gone").begin()
    [before] = backend.client.worker_use()
    backend.clock.now += 10_000
    Actor(backend.client, "heir").begin()
    [held, lost] = backend.client.worker_use()
    assert (held.worker, held.end) == ("heir", None)
    assert (lost.worker, lost.end, lost.until) == ("gone", "lost", before.until)


def test_each_way_to_end_is_told_the_latest_first_and_a_failure_is_one(backend: Backend) -> None:
    outcomes = ("finished", "stopped", "released")
    for outcome in outcomes:
        queue(backend, outcome)
        Actor(backend.client).begin().finish(outcome)
    # a run that was given back is the next one to be claimed
    Actor(backend.client).begin().fail()
    assert [held.end for held in backend.client.worker_use()] == ["failed", *reversed(outcomes)]


def test_what_ended_more_than_a_day_ago_is_left_out(backend: Backend) -> None:
    queue(backend, "old")
    Actor(backend.client).begin().finish()
    [held] = backend.client.worker_use()
    with backend.services.database.write() as tx:
        tx.execute(attempt.update().values(heard_at=held.until - timedelta(days=1, minutes=1)))
    assert backend.client.worker_use() == []
