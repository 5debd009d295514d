"""A worker acts on the run that it claimed, and on no other: every message shows the secret that its claim gave out."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from acting import GRPO, Actor
from serving import TOKEN, Backend
from sqlalchemy import select, update

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


@pytest.mark.parametrize("shown", [None, "", "a guess", "x" * 200])
def test_who_did_not_claim_a_run_changes_nothing_of_it(backend: Backend, shown: str | None) -> None:
    run = backend.client.create_run(GRPO)
    holder = Actor(backend.client).begin()
    before = backend.client.run(run.id)
    with Client(backend.url, TOKEN) as other:
        stranger = Actor(other, "stranger")
        stranger.run_id, stranger.attempt = run.id, holder.attempt
        if shown is not None:
            other.secrets[run.id, holder.attempt] = shown
        for message in MESSAGES:
            with pytest.raises(ApiError) as caught:
                message(stranger)
            assert (caught.value.status, caught.value.code) == (409, "lease_lost")
    assert backend.client.run(run.id) == before
    holder.beat()


def test_the_secret_of_an_earlier_attempt_or_of_another_run_opens_nothing(backend: Backend) -> None:
    for _ in range(2):
        backend.client.create_run(GRPO)
    first = Actor(backend.client, "one").begin()
    second = Actor(backend.client, "two").begin()
    secrets = backend.client.secrets
    secrets[second.run_id, second.attempt] = secrets[first.run_id, first.attempt]
    with pytest.raises(ApiError, match="not the worker that claimed"):
        second.beat()


def test_only_a_hash_of_the_secret_is_kept(backend: Backend) -> None:
    backend.client.create_run(GRPO)
    claim = Actor(backend.client).claim()
    assert claim is not None
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
    run = backend.client.create_run(GRPO)
    actor = Actor(backend.client).begin()
    with backend.services.database.write() as tx:
        tx.execute(update(attempt).values(secret_sha256=None))
    backend.client.secrets.clear()
    actor.report(0)
    actor.finish()
    assert backend.client.run(run.id).status == "finished"


def test_what_a_killed_worker_left_in_its_spool_is_sent_with_the_secret_of_its_claim(
    backend: Backend, tmp_path: Path
) -> None:
    run = backend.client.create_run(GRPO)
    claim = Actor(backend.client).claim()
    assert claim is not None
    folder = tmp_path / "spool"
    with Client("http://127.0.0.1:9", TOKEN) as nowhere:
        spool = Spool(
            spool_file(folder, run.id, 1),
            partial(send, nowhere, run.id),
            on_lost=lambda: None,
            cap_bytes=10**6,
            secret=claim.secret,
        )
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
    backend.client.create_run(GRPO)
    actor = Actor(backend.client).begin()
    sent = p.CheckpointReport(attempt=1, step=0, store="/store", path=path, sha256="0" * 64, size_bytes=1)
    with pytest.raises(ApiError, match="must lie below run-1/"):
        backend.client.checkpoint(actor.run_id, sent)
