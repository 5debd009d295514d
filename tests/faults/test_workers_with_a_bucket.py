"""Workers that share nothing but a bucket on a real S3 server: each goes on with the runs of the others, and nothing that was torn counts."""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Site, kill, tiny_run, wait_until
from s3_server import SECRET, S3Server
from worker_killed_uploading import MOMENTS

from backend.bucket.bucket import MANIFEST, Bucket
from backend.contract.base import Json

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.thorough]

OWN = {"id": True, "run_id": True, "attempt": True, "completions": {"__all__": {"id"}}}


@pytest.fixture
def site(bucket: Bucket, tmp_path: Path) -> Iterator[Site]:
    """Its backend and all its workers know the bucket, and have homes of their own."""
    one = Site(tmp_path / "home", checkpoints=bucket.address, max_failures=9)
    one.backend()
    yield one
    one.close()
    logs = [path.read_text(errors="replace") for path in one.home.glob("*.log")]
    assert logs
    assert not any(SECRET in text for text in logs)


def trained(site: Site, run_id: int, steps: int) -> tuple[object, str]:
    """Its groups with all their completions, and the hash of its last weights, as they are downloaded from the backend."""
    groups = [
        json.loads(site.client.group(summary.id).model_dump_json(exclude=OWN))
        for step in range(steps)
        for summary in site.client.groups(run_id, step=step, limit=50).items
    ]
    weights = hashlib.sha256()
    with zipfile.ZipFile(io.BytesIO(b"".join(site.client.download_checkpoint(run_id, steps)))) as zipped:
        for name in sorted(zipped.namelist()):
            weights.update(zipped.read(name))
    return groups, weights.hexdigest()


def stored(bucket: Bucket, run_id: int) -> dict[str, bool]:
    """The folders of a run's checkpoints in the bucket, and whether each is whole."""
    keys = bucket.keys(f"run-{run_id}")
    return {folder: f"{folder}/{MANIFEST}" in keys for folder in {"/".join(key.split("/")[:2]) for key in keys}}


@pytest.mark.parametrize("moments", [("half",), pytest.param(MOMENTS, marks=pytest.mark.long)], ids=len)
def test_workers_killed_while_they_upload_leave_a_run_that_others_finish_as_if_nothing_had_been(
    site: Site, bucket: Bucket, tmp_path: Path, moments: tuple[str, ...]
) -> None:
    steps = 2 * len(moments) + 4
    config = tiny_run(steps, every=2)
    keep: Json = {"last": 2, "best": False}
    config["budget"] = {**config["budget"], "keep": keep}  # type: ignore[dict-item]
    run = site.client.create_run(config)
    for moment in moments:
        home = tmp_path / moment
        killed = site.worker(home, module="tests.faults.worker_killed_uploading", KILLED_WHEN=moment)
        assert killed.wait(300) == -9
        offered = site.client.checkpoints(run.id)
        assert all(stored(bucket, run.id)[one.path] for one in offered), "what is offered is whole"
        assert not any((tmp_path / "home").glob("checkpoints/run-*")), "nothing lies where all could reach it"
    site.worker(tmp_path / "last")
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt, ended.failures) == ("finished", len(moments) + 1, len(moments))
    undisturbed = site.run_to_end(config)
    assert undisturbed.attempt == 1
    assert trained(site, run.id, steps) == trained(site, undisturbed.id, steps)
    for one in (run, undisturbed):
        offered = site.client.checkpoints(one.id)
        assert [checkpoint.step for checkpoint in offered] == [steps - 2, steps]
        assert stored(bucket, one.id) == {checkpoint.path: True for checkpoint in offered}, "what does not stay is gone"
        site.client.delete_run(one.id)
    wait_until(lambda: not site.client.deletions(), "both runs are removed")
    assert [key for key in bucket.keys("") if key.startswith("run-")] == []


def test_a_run_trains_on_while_the_bucket_is_away_waits_for_it_at_its_end_and_says_so(
    site: Site, bucket: Bucket, s3: S3Server, tmp_path: Path
) -> None:
    site.held_worker(3, home=tmp_path / "one")
    run = site.client.create_run(tiny_run(8, every=2))
    wait_until(lambda: site.client.checkpoints(run.id), "the first checkpoint is in the bucket")
    s3.stop()
    try:
        site.go_on(3, home=tmp_path / "one")
        wait_until(lambda: site.client.groups(run.id, step=7).items, "the last step is reported")
        wait_until(lambda: site.client.run(run.id).progress.phase == "checkpoint", "it waits for the bucket")
        wait_until(lambda: "is not in the bucket yet" in site.said(run.id), "the run's log says so")
        assert site.client.run(run.id).status == "running"
        assert [one.step for one in site.client.checkpoints(run.id)] == [2]
    finally:
        s3.start()
    assert site.wait_for_end(run.id).status == "finished"
    assert [one.step for one in site.client.checkpoints(run.id)] == [2, 4, 6, 8]
    assert all(stored(bucket, run.id).values())
    source = site.client.create_run({**tiny_run(1), "model": {"source": f"run:{run.id}@8"}})
    site.worker(tmp_path / "two")
    assert site.wait_for_end(source.id).status == "finished"


@pytest.mark.long
def test_a_run_of_two_processes_goes_on_with_two_of_another_worker(site: Site, tmp_path: Path) -> None:
    config = tiny_run(8, every=2, compute={"processes": 2})
    run = site.client.create_run(config)
    first = site.worker(tmp_path / "one", GROUPSCOPE_PROCESSES="2")
    wait_until(lambda: site.client.checkpoints(run.id), "the first checkpoint is in the bucket")
    kill(first)
    site.worker(tmp_path / "two", GROUPSCOPE_PROCESSES="2")
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt) == ("finished", 2)
    undisturbed = site.run_to_end(config)
    assert trained(site, run.id, 8) == trained(site, undisturbed.id, 8)


@pytest.mark.long
@pytest.mark.parametrize("waits", [False, True], ids=["training", "training waits for the bucket"])
def test_a_worker_that_is_asked_to_end_while_the_bucket_is_away_gives_its_run_back(
    site: Site, s3: S3Server, tmp_path: Path, waits: bool
) -> None:
    first = site.held_worker(3, home=tmp_path / "one")
    run = site.client.create_run(tiny_run(400, every=2))
    wait_until(lambda: site.client.checkpoints(run.id), "the first checkpoint is in the bucket")
    s3.stop()
    try:
        site.go_on(3, home=tmp_path / "one")
        site.wait_for_step(run.id, 5)
        if waits:  # checkpoints 4 to 10 wait, and there is no room for another one
            wait_until(lambda: site.client.run(run.id).progress.step >= 12, "training waits")
        first.terminate()
        assert first.wait(75) == 0
        given_back = site.client.run(run.id)
        assert (given_back.status, given_back.failures) == ("queued", 0)
        assert [one.step for one in site.client.checkpoints(run.id)] == [2]
    finally:
        s3.start()
    site.worker(tmp_path / "two")
    resumed = "resumed from checkpoint 2 "
    wait_until(lambda: resumed in site.said(run.id), "the next worker goes on from the last checkpoint in the bucket")
