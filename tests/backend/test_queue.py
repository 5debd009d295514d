"""A long queue of large runs: what happens under the write lock does not grow with it, and a claim reads none of them."""

from collections.abc import Callable
from typing import Any

from acting import GRPO, SAMPLE, Actor, began
from plans import plan
from serving import Backend
from sqlalchemy import event, update

from backend import workers
from backend.contract import protocol as p
from backend.contract import records as r
from backend.contract.config import RUN_CONFIG
from backend.contract.records import OwnReward, RewardFile
from backend.lifecycle import creation
from backend.storage.tables import worker

LARGE: dict[str, Any] = {
    **SAMPLE,
    "prompts": ["x" * 10_000],
    "rewards": {"functions": [{"name": "judged", "kind": "judge", "endpoint": "nobody"}]},
}


def queue(backend: Backend, number: int) -> None:
    """Runs that no worker of these tests can take."""
    body = r.RunCreate(config=RUN_CONFIG.validate_python(LARGE))
    with backend.services.database.write() as tx:
        for _ in range(number):
            creation.create(tx, body, None, backend.services.clock.stamp())


def work(backend: Backend, act: Callable[[], object]) -> int:
    """What SQLite's machine does meanwhile on the connection that writes: one for every ten of its instructions."""
    done: list[int] = []
    with backend.services.database.writer.connect() as writer:  # the only one: nobody uses it meanwhile
        connection: Any = writer.connection.driver_connection
    connection.set_progress_handler(lambda: done.append(1), 10)
    act()
    connection.set_progress_handler(None, 10)
    return len(done)


def test_under_the_write_lock_nothing_grows_with_the_queue(backend: Backend) -> None:
    holder, idle = Actor(backend.client, "holder"), Actor(backend.client, "idle")
    for _ in range(3):
        backend.client.create_run(GRPO)
    holder.begin()
    acts: dict[str, Callable[[], object]] = {
        "a claim that finds nothing": lambda: idle.claim("sample"),
        "a claim": lambda: idle.claim("grpo"),
        "a heartbeat": holder.beat,
    }
    queue(backend, 3)
    few = {name: work(backend, act) for name, act in acts.items()}
    queue(backend, 300)
    many = {name: work(backend, act) for name, act in acts.items()}
    for name, count in many.items():  # a pulse or a sweep may come between, of a few hundred instructions
        assert count < few[name] + 200, (
            f"{name} does {10 * count} instructions with a long queue, and {10 * few[name]} with a short one"
        )


def test_no_claim_deletion_or_checkpoint_reads_the_runs_that_wait(backend: Backend) -> None:
    gone = backend.client.command(backend.client.create_run(GRPO).id, "stop").id
    holder = began(backend.client, {"kind": "grpo", "budget": {"keep": {"last": 1}}}, name="holder")
    holder.save(1)
    queue(backend, 2)
    asked: list[tuple[str, Any]] = []
    for engine in (backend.services.database.reader, backend.services.database.writer):
        event.listen(engine, "before_cursor_execute", lambda *call: asked.append((call[2], call[3])))
    assert Actor(backend.client, "idle").claim() is None
    backend.client.delete_run(gone)
    holder.save(2)
    looked = [one for one in asked if "run.needs" in one[0] and "run.config" not in one[0]]
    assert len(looked) == 3
    with backend.services.database.read() as tx:
        for statement, parameters in looked:
            steps = plan(tx, statement, parameters)
            assert any("USING COVERING INDEX ix_run_queue" in step for step in steps), steps
    assert not [one for one in asked if "CAST(run.config" in one[0]]


def test_idle_workers_ask_the_less_often_the_more_there_are_and_never_so_rarely_that_one_counts_as_lost(
    backend: Backend,
) -> None:
    services = backend.services

    def asks_again(alive: int) -> float:
        with services.database.write() as tx:
            for number in range(alive):
                workers.seen(tx, Actor(backend.client, f"machine-{number}").info, services.clock.seconds())
        return backend.client.ask(p.ClaimRequest(worker=Actor(backend.client, "machine-0").info)).ask_again_seconds

    assert asks_again(1) == asks_again(10) == 0.5
    assert asks_again(200) == 200 / workers.ASKS_PER_SECOND
    assert asks_again(1000) == services.settings.lease_seconds / 3
    with services.database.write() as tx:
        tx.execute(update(worker).values(seen_at=0.0))
    assert asks_again(0) == 0.5  # the others have not been heard of for long


def test_a_worker_with_an_older_file_leaves_a_run_to_the_one_whose_file_can_score(backend: Backend) -> None:
    older = RewardFile(name="right.py", passed_over={"f": "takes text"})
    newer = RewardFile(name="right.py", functions=[OwnReward(function="right.py:f")])
    old, new = Actor(backend.client, "old", reward_files=[older]), Actor(backend.client, "new", reward_files=[newer])
    function = {"kind": "python", "name": "own", "weight": 1.0, "function": "right.py:f"}
    assert new.claim() is None  # heard of
    backend.client.create_run({**GRPO, "rewards": {"functions": [function]}})
    assert old.claim() is None
    assert new.claim() is not None
    backend.clock.now += backend.services.settings.lease_seconds + 1  # nobody is up who has it
    backend.client.create_run({**GRPO, "rewards": {"functions": [function]}})
    assert old.claim() is not None  # which refuses it, with the reason
