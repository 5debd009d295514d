"""A worker acts on the run that it claimed and on no other, with the secret of its claim; at most one worker's writes count."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from acting import GRPO, Actor, api_error, began
from serving import TOKEN, Backend, SteppedClock
from sqlalchemy import select, text, update

from backend.contract import protocol as p
from backend.contract.client import ApiError, Client
from backend.contract.spool import Recovery, Spool, send, spool_file
from backend.storage.tables import attempt

MESSAGES: list[Callable[[Actor], object]] = [
    lambda actor: actor.start(),
    lambda actor: actor.beat(),
    lambda actor: actor.report(5, metrics={"reward": 99.0}),
    lambda actor: actor.report_two(5, metrics={"reward": 99.0}),
    lambda actor: actor.save(3),
    lambda actor: actor.finish("stopped"),
    lambda actor: actor.fail(),
]


def lost(actor: Actor) -> None:
    """Each of its messages is refused: the run is not its own."""
    for message in MESSAGES:
        with api_error(409, "lease_lost"):
            message(actor)


def counts(backend: Backend) -> list[int]:
    tables = ("metric", "prompt_group", "completion", "checkpoint", "log_line", "report", "run_event", "attempt")
    with backend.services.database.read() as tx:
        return [tx.execute(text(f"select count(*) from {table}")).scalar_one() for table in tables]


def test_a_paused_worker_cannot_overwrite_its_successor(backend: Backend) -> None:
    first = began(backend.client, name="first")
    first.report(0, metrics={"reward": 0.1})
    backend.clock.now += 31
    second = Actor(backend.client, "second").begin(from_step=0)
    assert second.attempt == 2
    before, shown = counts(backend), backend.client.run(first.run_id)
    lost(first)
    assert counts(backend) == before
    assert backend.client.run(first.run_id) == shown
    second.report(0)
    second.finish()


def test_every_write_renews_the_lease_also_one_that_ran_out_until_the_run_ends(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    actor = Actor(backend.client)
    actor.claim()
    for step, write in enumerate([actor.start, actor.beat, lambda: actor.report(0), lambda: actor.save(1)]):
        backend.clock.now += 20
        write()
        assert Actor(backend.client, f"other {step}").claim() is None
    backend.clock.now += 31
    actor.report(1)
    assert Actor(backend.client, "other").claim() is None, "a worker that was only slow keeps its run"
    assert backend.client.run(run.id).failures == 0
    assert not actor.finish().duplicate
    with pytest.raises(ApiError, match="Attempt 1 no longer holds run 1: the run is finished"):
        actor.beat()


def test_a_lost_lease_costs_budget_and_the_next_worker_goes_on_from_the_checkpoint(backend: Backend) -> None:
    actor = began(backend.client)
    actor.report(0)
    actor.save(1)
    backend.clock.now += 31
    resume = Actor(backend.client, "two").claimed().resume
    assert resume is not None
    assert (resume.step, resume.store) == (1, "/store")
    assert backend.client.run(actor.run_id).failures == 1


def test_a_worker_whose_run_was_deleted_is_told_that_it_lost_it(backend: Backend) -> None:
    actor = began(backend.client)
    actor.finish("released")
    backend.client.delete_run(actor.run_id)
    with pytest.raises(ApiError, match="no longer exists") as caught:
        actor.beat()
    assert caught.value.code == "lease_lost"


def test_when_the_backend_was_away_no_lease_is_lost(start_backend: Callable[..., Backend]) -> None:
    first = start_backend()
    actor = began(first.client)
    later = SteppedClock()
    later.now += 1000
    second = start_backend(clock=later)  # on the same home
    later.now += 29
    assert Actor(second.client, "other").claim() is None
    actor.client = second.client
    second.client.secrets |= first.client.secrets
    actor.report(0)
    assert second.client.run(actor.run_id).failures == 0


@pytest.mark.slow
def test_many_workers_at_once_never_get_the_same_run(backend: Backend) -> None:
    runs = {backend.client.create_run(GRPO).id for _ in range(100)}
    claimed: list[int] = []
    lock = threading.Lock()

    def work(name: str) -> None:
        with Client(backend.url, TOKEN) as client:
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


@pytest.mark.parametrize("shown", [None, "", "a guess", "x" * 200])
def test_who_did_not_claim_a_run_changes_nothing_of_it(backend: Backend, shown: str | None) -> None:
    holder = began(backend.client)
    before = backend.client.run(holder.run_id)
    with Client(backend.url, TOKEN) as other:
        stranger = Actor(other, "stranger")
        stranger.run_id, stranger.attempt = holder.run_id, holder.attempt
        if shown is not None:
            other.secrets[holder.run_id, holder.attempt] = shown
        lost(stranger)
    assert backend.client.run(holder.run_id) == before
    holder.beat()


def test_the_secret_of_an_earlier_attempt_or_of_another_run_opens_nothing(backend: Backend) -> None:
    for _ in range(2):
        backend.client.create_run(GRPO)
    first, second = Actor(backend.client, "one").begin(), Actor(backend.client, "two").begin()
    secrets = backend.client.secrets
    secrets[second.run_id, second.attempt] = secrets[first.run_id, first.attempt]
    with pytest.raises(ApiError, match="not the worker that claimed"):
        second.beat()


def test_only_a_hash_of_the_secret_is_kept(backend: Backend) -> None:
    backend.client.create_run(GRPO)
    claim = Actor(backend.client).claimed()
    with backend.services.database.read() as tx:
        assert claim.secret not in str(tx.execute(select(attempt)).mappings().all())
    assert len(claim.secret) >= 32


def test_a_worker_of_the_version_before_gets_no_run_and_is_told_why(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    body = {"worker": {"name": "old", "device": "CPU", "store": "/s"}, "kinds": ["grpo"]}
    answer = backend.http.post("/api/v1/worker/claim", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    assert "version 1 of the worker protocol" in answer.json()["error"]["message"]
    assert backend.client.run(run.id).status == "queued"


def test_an_attempt_from_before_there_were_secrets_goes_on_to_its_end(backend: Backend) -> None:
    actor = began(backend.client)
    with backend.services.database.write() as tx:
        tx.execute(update(attempt).values(secret_sha256=None))
    backend.client.secrets.clear()
    actor.report(0)
    actor.finish()
    assert backend.client.run(actor.run_id).status == "finished"


def test_what_a_killed_worker_left_in_its_spool_is_sent_with_the_secret_of_its_claim(
    backend: Backend, tmp_path: Path
) -> None:
    run = backend.client.create_run(GRPO)
    claim = Actor(backend.client).claimed()
    folder = tmp_path / "spool"
    with Client("http://127.0.0.1:9", TOKEN) as nowhere:
        file, to = spool_file(folder, run.id, 1), partial(send, nowhere, run.id)
        spool = Spool(file, to, on_lost=lambda: None, cap_bytes=10**6, secret=claim.secret)
        spool.append("start", p.Start(attempt=1, from_step=0, device="CPU"))
        spool.append("report", p.Report(attempt=1, seq=0, step=0, metrics={"reward": 1.0}))
        spool.close()
    assert [path.stat().st_mode & 0o077 for path in folder.iterdir()] == [0]
    with Client(backend.url, TOKEN) as restarted:
        Recovery(folder, restarted).advance()
    assert backend.client.run(run.id).progress.step == 1


@pytest.mark.parametrize(
    "path", ["run-2/step-1", "step-1", "run-1", "run-1/../run-2/step-1", "/run-1/step-1", "run-10/s"]
)
def test_a_checkpoint_lies_in_its_own_runs_folder(backend: Backend, path: str) -> None:
    actor = began(backend.client)
    sent = p.CheckpointReport(attempt=1, step=0, store="/store", path=path, sha256="0" * 64, size_bytes=1)
    with pytest.raises(ApiError, match="must lie below run-1/"):
        backend.client.checkpoint(actor.run_id, sent)
