"""At most one worker's writes count."""

import threading
from collections.abc import Callable

import pytest
from acting import GRPO, Actor
from serving import Backend, SteppedClock
from sqlalchemy import text

from backend.contract.client import ApiError, Client


def counts(backend: Backend) -> list[int]:
    tables = ("metric", "prompt_group", "completion", "checkpoint", "log_line", "report", "run_event", "attempt")
    with backend.services.database.read() as tx:
        return [tx.execute(text(f"select count(*) from {table}")).scalar_one() for table in tables]


def test_a_paused_worker_cannot_overwrite_its_successor(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    first = Actor(backend.client, "first").begin()
    first.report(0, metrics={"reward": 0.1})
    backend.clock.now += 31
    second = Actor(backend.client, "second").begin(from_step=0)
    assert second.attempt == 2
    before, shown = counts(backend), backend.client.run(run.id)
    late: list[Callable[[], object]] = [
        first.beat,
        lambda: first.start(0),
        lambda: first.report(1, metrics={"reward": 0.9}),
        lambda: first.report_two(1, metrics={"reward": 0.9}),
        lambda: first.save(2),
        first.finish,
        first.fail,
    ]
    for write in late:
        with pytest.raises(ApiError) as caught:
            write()
        assert (caught.value.status, caught.value.code) == (409, "lease_lost")
    assert counts(backend) == before
    assert backend.client.run(run.id) == shown
    second.report(0)
    second.finish()


def test_a_worker_that_was_only_slow_keeps_its_run(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    actor = Actor(backend.client).begin()
    backend.clock.now += 31
    actor.report(0)
    assert Actor(backend.client, "other").claim() is None, "the late report renewed the lease"
    assert backend.client.run(run.id).failures == 0


def test_every_write_renews_the_lease(backend: Backend) -> None:
    backend.client.create_run(GRPO)
    actor = Actor(backend.client)
    actor.claim()
    for step, write in enumerate([actor.start, actor.beat, lambda: actor.report(0), lambda: actor.save(1)]):
        backend.clock.now += 20
        write()
        assert Actor(backend.client, f"other {step}").claim() is None


def test_a_lost_lease_costs_budget_and_the_next_worker_goes_on_from_the_checkpoint(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    actor = Actor(backend.client).begin()
    actor.report(0)
    actor.save(1)
    backend.clock.now += 31
    claim = Actor(backend.client, "two").claim()
    assert claim is not None
    assert claim.resume is not None
    assert (claim.resume.step, claim.resume.store) == (1, "/store")
    assert backend.client.run(run.id).failures == 1


def test_a_worker_whose_run_was_deleted_is_told_that_it_lost_it(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    actor = Actor(backend.client).begin()
    actor.finish("released")
    backend.client.delete_run(run.id)
    with pytest.raises(ApiError, match="no longer exists") as caught:
        actor.beat()
    assert caught.value.code == "lease_lost"


def test_ending_an_attempt_twice_is_harmless_and_ending_it_otherwise_is_refused(backend: Backend) -> None:
    backend.client.create_run(GRPO)
    actor = Actor(backend.client).begin()
    assert not actor.finish().duplicate
    assert actor.finish().duplicate
    for other in (lambda: actor.finish("stopped"), actor.fail, actor.beat):
        with pytest.raises(ApiError) as caught:
            other()
        assert caught.value.code == "lease_lost"


def test_starting_twice_is_harmless_and_starting_elsewhere_is_refused(backend: Backend) -> None:
    backend.client.create_run(GRPO)
    actor = Actor(backend.client).begin(from_step=0)
    assert actor.start(0).duplicate
    with pytest.raises(ApiError, match="already began at step 0"):
        actor.start(3)


def test_when_the_backend_was_away_no_lease_is_lost(start_backend: Callable[..., Backend]) -> None:
    first = start_backend()
    run = first.client.create_run(GRPO)
    actor = Actor(first.client).begin()
    later = SteppedClock()
    later.now += 1000
    second = start_backend(clock=later)  # on the same home
    later.now += 29
    assert Actor(second.client, "other").claim() is None
    actor.client = second.client
    second.client.secrets |= first.client.secrets
    actor.report(0)
    assert second.client.run(run.id).failures == 0


@pytest.mark.slow
def test_many_workers_at_once_never_get_the_same_run(backend: Backend) -> None:
    runs = {backend.client.create_run(GRPO).id for _ in range(100)}
    claimed: list[int] = []
    lock = threading.Lock()

    def work(name: str) -> None:
        with Client(backend.url, "test-token") as client:
            actor = Actor(client, name)
            while (claim := actor.claim()) is not None:
                with lock:
                    claimed.append(claim.run_id)

    threads = [threading.Thread(target=work, args=(f"worker {number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == len(runs)
    assert set(claimed) == runs
