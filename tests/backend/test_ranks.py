"""What a worker says of the processes of its run is shown while it holds the run, and by nobody else's word."""

from acting import GRPO, Actor
from serving import Backend

from backend.contract.records import Rank, Ranks

TOGETHER = GRPO | {"compute": {"processes": 2}}
TWO = Ranks(
    count=2,
    items=[Rank(rank=0, phase="rollout", waits_seconds=7.0), Rank(rank=1, phase="rollout", slow="silent")],
    memory_bytes=3 * 2**30,
)


def holder(backend: Backend) -> Actor:
    actor = Actor(backend.client, "two_cards")
    actor.info = actor.info.model_copy(update={"processes": 4})
    backend.client.create_run(TOGETHER)
    return actor.begin()


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
