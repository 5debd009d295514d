"""A stop in every state, and two things at the same moment: how a run ends is decided once."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from acting import GRPO, Actor, began
from serving import TOKEN, Backend
from sqlalchemy import select

from backend.contract.client import ApiError, Client
from backend.storage.tables import run_event

ROUNDS = 20
ENDS = {"finished", "stopped", "failed"}


def queued(backend: Backend) -> Actor:
    actor = Actor(backend.client)
    actor.run_id = backend.client.create_run(GRPO).id
    return actor


def running(backend: Backend) -> Actor:
    return began(backend.client)


def asked(verb: str) -> Callable[[Backend], Actor]:
    def asked_to(backend: Backend) -> Actor:
        actor = running(backend)
        backend.client.command(actor.run_id, verb)
        return actor

    return asked_to


def ended(outcome: str) -> Callable[[Backend], Actor]:
    def so(backend: Backend) -> Actor:
        actor = running(backend)
        actor.fail() if outcome == "failed" else actor.finish(outcome)  # type: ignore[arg-type]
        return actor

    return so


def statuses(backend: Backend, run_id: int) -> list[str]:
    """All that a run went through, as its events say."""
    query = select(run_event.c.payload).where(run_event.c.run_id == run_id, run_event.c.kind == "status")
    with backend.services.database.read() as tx:
        return [payload["status"] for payload in tx.execute(query.order_by(run_event.c.id)).scalars()]


# state: how a run gets there, what two stops answer, and where it is after its worker has finished its step
STOPS: dict[str, tuple[Callable[[Backend], Actor], list[object], str]] = {
    "queued": (queued, [("stopped", "nothing"), 409], "stopped"),
    "paused": (ended("paused"), [("stopped", "nothing"), 409], "stopped"),
    "running": (running, [("running", "stop"), ("running", "stop_at_once")], "stopped"),
    "asked to pause": (asked("pause"), [("running", "stop"), ("running", "stop_at_once")], "stopped"),
    "asked to stop": (asked("stop"), [("running", "stop_at_once")] * 2, "stopped"),
    "finished": (ended("finished"), [409, 409], "finished"),
    "stopped": (ended("stopped"), [409, 409], "stopped"),
    "failed": (ended("failed"), [409, 409], "failed"),
}


@pytest.mark.parametrize("state", STOPS)
def test_a_run_that_is_stopped_twice_in_any_state_ends_once_also_if_it_is_deleted(backend: Backend, state: str) -> None:
    reach, answers, end = STOPS[state]
    actor = reach(backend)
    for answer in answers:
        assert answer_of(lambda: backend.client.command(actor.run_id, "stop")) == answer
    if backend.client.run(actor.run_id).status == "running":
        actor.finish("stopped")
    assert backend.client.run(actor.run_id).status == end
    assert [status for status in statuses(backend, actor.run_id) if status in ENDS] == [end]
    backend.client.delete_run(actor.run_id)
    assert answer_of(lambda: backend.client.command(actor.run_id, "stop")) == 404


def answer_of(command: Callable[[], object]) -> object:
    try:
        found = command()
    except ApiError as error:
        return error.status
    return (found.status, found.requested) if hasattr(found, "status") else found


def at_once(*acts: Callable[[], object]) -> list[object]:
    """What each answered, all begun at the same moment."""
    together = threading.Barrier(len(acts), timeout=30)

    def answered(act: Callable[[], object]) -> object:
        together.wait()
        return answer_of(act)

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(answered, acts))


@pytest.mark.slow
def test_a_stop_at_the_moment_of_the_end_changes_nothing_that_was_decided(backend: Backend) -> None:
    with Client(backend.url, TOKEN) as person:
        for _ in range(ROUNDS):
            actor = running(backend)
            stopped, _ = at_once(lambda one=actor: person.command(one.run_id, "stop"), actor.finish)  # type: ignore[misc]
            assert stopped in (("running", "stop"), 409)
            assert backend.client.run(actor.run_id).status == "finished"
            assert statuses(backend, actor.run_id).count("finished") == 1
            assert actor.finish().duplicate


@pytest.mark.slow
def test_a_run_that_is_deleted_at_the_moment_of_its_claim_is_either_held_or_gone(backend: Backend) -> None:
    with Client(backend.url, TOKEN) as person:
        for number in range(ROUNDS):
            actor, run_id = Actor(backend.client, f"worker {number}"), queued(backend).run_id
            deletion, claim = at_once(lambda one=run_id: person.delete_run(one), actor.claim)  # type: ignore[misc]
            if claim is None:
                assert deletion is None
                assert answer_of(lambda one=run_id: person.run(one)) == 404  # type: ignore[misc]
            else:
                assert deletion == 409
                assert actor.run_id == run_id
                actor.start()
                actor.finish()


@pytest.mark.slow
def test_of_many_who_stop_retry_and_claim_at_once_each_is_answered_and_one_worker_holds_the_run(
    backend: Backend,
) -> None:
    with Client(backend.url, TOKEN) as person:
        for number in range(ROUNDS):
            one = ended("stopped")(backend)
            workers = [Actor(backend.client, f"{number} {name}") for name in "ab"]
            at_once(
                lambda run_id=one.run_id: person.command(run_id, "retry"),  # type: ignore[misc]
                *(worker.claim for worker in workers),
            )
            held = [worker for worker in workers if worker.run_id]
            found = backend.client.run(one.run_id)
            assert [(worker.run_id, worker.attempt) for worker in held] == [(one.run_id, 2)] * len(held)
            assert (len(held), found.status) in ((0, "queued"), (1, "running"))
            backend.client.command(one.run_id, "stop")
            for worker in held:
                worker.finish("stopped")
