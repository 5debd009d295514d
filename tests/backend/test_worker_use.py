"""What each worker held and until when it was heard of, and what it says of the processes of its run, by nobody else's word."""

from datetime import timedelta

from acting import GRPO, Actor, began
from serving import Backend

from backend.contract.records import Rank, Ranks
from backend.storage.tables import attempt


def test_a_run_under_way_is_held_until_it_ends(backend: Backend) -> None:
    run_id = backend.client.create_run(GRPO, name="mine").id
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
    began(backend.client, name="gone")
    [before] = backend.client.worker_use()
    backend.clock.now += 10_000
    Actor(backend.client, "heir").begin()
    [held, lost] = backend.client.worker_use()
    assert (held.worker, held.end) == ("heir", None)
    assert (lost.worker, lost.end, lost.until) == ("gone", "lost", before.until)


def test_each_way_to_end_is_told_the_latest_first_and_a_failure_is_one(backend: Backend) -> None:
    outcomes = ("finished", "stopped", "released")
    for outcome in outcomes:
        began(backend.client).finish(outcome)
    # a run that was given back is the next one to be claimed
    Actor(backend.client).begin().fail()
    assert [held.end for held in backend.client.worker_use()] == ["failed", *reversed(outcomes)]


def test_what_ended_more_than_a_day_ago_is_left_out(backend: Backend) -> None:
    began(backend.client).finish()
    [held] = backend.client.worker_use()
    with backend.services.database.write() as tx:
        tx.execute(attempt.update().values(heard_at=held.until - timedelta(days=1, minutes=1)))
    assert backend.client.worker_use() == []


TOGETHER = GRPO | {"compute": {"processes": 2}}
TWO = Ranks(
    count=2,
    items=[Rank(rank=0, phase="rollout", waits_seconds=7.0), Rank(rank=1, phase="rollout", slow="silent")],
    memory_bytes=3 * 2**30,
)


def holder(backend: Backend) -> Actor:
    return began(backend.client, TOGETHER, name="two_cards", processes=4)


def test_the_processes_are_those_of_the_newest_heartbeat_with_its_age(backend: Backend) -> None:
    actor = holder(backend)
    assert backend.client.ranks(actor.run_id) == Ranks()
    actor.beat(ranks=TWO)
    assert backend.client.ranks(actor.run_id) == TWO
    actor.beat()  # of a worker that says nothing of them
    backend.clock.now += 3
    assert backend.client.ranks(actor.run_id) == TWO.model_copy(update={"age_seconds": 3.0})


def test_an_attempt_that_has_ended_has_no_processes_and_the_next_one_its_own(backend: Backend) -> None:
    actor = holder(backend)
    actor.beat(ranks=TWO)
    actor.finish("released")
    assert backend.client.ranks(actor.run_id) == Ranks()
    actor.begin()
    assert backend.client.ranks(actor.run_id) == Ranks()


def test_a_worker_is_listed_with_how_many_of_its_processes_are_used_and_their_memory(backend: Backend) -> None:
    actor = holder(backend)
    actor.beat(ranks=TWO)
    (worker,) = backend.client.workers()
    assert (worker.processes, worker.processes_used, worker.memory_used_bytes) == (4, 2, 3 * 2**30)
    actor.finish()
    (worker,) = backend.client.workers()
    assert (worker.run_id, worker.processes_used, worker.memory_used_bytes) == (None, 0, None)
