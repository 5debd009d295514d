"""Checkpoints in a bucket, on a real S3 server: what a client of ours does, what the backend serves out of it, and what it removes."""

import hashlib
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from acting import Actor, api_error, began
from processes import wait_until
from s3_server import S3Server
from serving import Backend

from backend.bucket import bucket as buckets
from backend.bucket.bucket import MANIFEST, Bucket, BucketTrouble
from backend.contract.client import ApiError, Unreachable
from backend.contract.home import CannotStart, load
from backend.lifecycle import deletion
from backend.settings import Settings

WEIGHTS = bytes(range(256)) * 20_000


def put(bucket: Bucket, folder: Path, key: str, content: bytes) -> None:
    file = folder / "object"
    file.write_bytes(content)
    bucket.put(key, file)


def put_checkpoint(bucket: Bucket, folder: Path, path: str, weights: bytes = WEIGHTS) -> str:
    """A checkpoint in the bucket; the hash of its manifest."""
    files = {"model/model.safetensors": weights, "model/config.json": b"{}", "state.json": b"{}"}
    for name, content in files.items():
        put(bucket, folder, f"{path}/{name}", content)
    described = {name: {"size": len(one), "sha256": hashlib.sha256(one).hexdigest()} for name, one in files.items()}
    manifest = json.dumps({"files": described}).encode()
    put(bucket, folder, f"{path}/{MANIFEST}", manifest)
    return hashlib.sha256(manifest).hexdigest()


def saved(backend: Backend, bucket: Bucket, folder: Path) -> Actor:
    """A finished run whose checkpoint 1 lies in the bucket."""
    actor = began(backend.client, store=f"{bucket.address}#ab12")
    actor.report(0)
    manifest = put_checkpoint(bucket, folder, f"run-{actor.run_id}/step-1")
    actor.save(1, sha256=manifest)
    actor.finish()
    return actor


@pytest.mark.thorough
def test_all_that_use_a_bucket_know_it_by_one_name_also_if_they_come_at_once(bucket: Bucket) -> None:
    with ThreadPoolExecutor() as pool:
        names = set(pool.map(lambda _: bucket.name(), range(4)))
    assert names == {bucket.name()}
    [name] = names
    assert name.startswith(f"{bucket.address}#")


def test_a_folder_is_removed_with_all_that_lies_in_it_and_no_other(bucket: Bucket, tmp_path: Path) -> None:
    put_checkpoint(bucket, tmp_path, "run-1/step-1-attempt-1")
    put_checkpoint(bucket, tmp_path, "run-1/step-2-attempt-1")
    put(bucket, tmp_path, "run-12/pairs.jsonl", b"{}")
    bucket.remove("run-1/step-1-attempt-1")
    assert {key.split("/")[1] for key in bucket.keys("run-1")} == {"step-2-attempt-1"}
    bucket.remove("run-1")
    bucket.remove("run-1")
    assert (bucket.keys("run-1"), bucket.keys("run-12")) == ([], ["run-12/pairs.jsonl"])


@pytest.mark.parametrize(
    "address", ["/checkpoints", "s3://", "s3://UPPER/x", "s3://abc/../x", "s3://key:secret@abc", "s3://abc/a b"]
)
def test_an_address_that_is_none_of_a_bucket_is_refused_in_words(address: str) -> None:
    with pytest.raises(CannotStart, match=r"GROUPSCOPE_CHECKPOINTS is wrong: .*s3://bucket/prefix") as caught:
        load(Settings, checkpoints=address)
    assert "secret" not in str(caught.value)


def test_what_a_bucket_refuses_is_no_outage_and_no_secret_stands_in_the_words(
    bucket: Bucket, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret-than-the-servers")
    buckets._s3.cache_clear()
    with pytest.raises(BucketTrouble, match="refuses") as caught:
        bucket.keys("run-1")
    assert not caught.value.away
    assert not any(
        secret in str(caught.value) for secret in ("another-secret", s3.environment["AWS_SECRET_ACCESS_KEY"])
    )


def test_an_object_whose_upload_a_kill_cuts_short_is_not_there(bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(64 * 2**20))
    code = f"""
import os, signal
from pathlib import Path
from backend.bucket.bucket import Bucket
sent = 0
def kill(count):
    global sent
    sent += count
    if sent >= 48 * 2**20:
        os.kill(os.getpid(), signal.SIGKILL)
Bucket({bucket.address!r}).put("run-1/large", Path({str(tmp_path / "large")!r}), kill)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert bucket.keys("run-1") == []


def test_a_model_is_downloaded_out_of_the_bucket_and_one_that_was_damaged_there_is_never_taken_for_whole(
    start_backend: Callable[..., Backend], bucket: Bucket, tmp_path: Path
) -> None:
    backend = start_backend(checkpoints=bucket.address)
    actor = saved(backend, bucket, tmp_path)
    zipped = zipfile.ZipFile(io.BytesIO(b"".join(backend.client.download_checkpoint(actor.run_id, 1))))
    assert zipped.testzip() is None
    assert sorted(zipped.namelist()) == ["config.json", "model.safetensors"]
    assert zipped.read("model.safetensors") == WEIGHTS
    place = f"run-{actor.run_id}/step-1"
    put(bucket, tmp_path, f"{place}/model/model.safetensors", WEIGHTS[:-1] + b"x")
    with pytest.raises(Unreachable, match="broke off"):
        list(backend.client.download_checkpoint(actor.run_id, 1))
    put_checkpoint(bucket, tmp_path, place, b"other weights")
    with api_error(404, match=r"hash of manifest.json in the bucket differs"):
        list(backend.client.download_checkpoint(actor.run_id, 1))
    bucket.remove(place)
    with pytest.raises(ApiError, match="it is not in the bucket"):
        list(backend.client.download_checkpoint(actor.run_id, 1))


def test_a_backend_whose_settings_do_not_name_the_bucket_says_so(
    backend: Backend, bucket: Bucket, tmp_path: Path
) -> None:
    actor = saved(backend, bucket, tmp_path)
    with api_error(409, match="name the bucket in its GROUPSCOPE_CHECKPOINTS"):
        list(backend.client.download_checkpoint(actor.run_id, 1))


def test_a_bucket_that_refuses_keeps_no_deleted_run_whose_checkpoints_lie_elsewhere(
    start_backend: Callable[..., Backend], bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = start_backend(checkpoints=bucket.address)
    there = saved(backend, bucket, tmp_path)
    here = began(backend.client, store="/a/home#cd34")
    here.report(0)
    here.save(1)
    here.finish()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    buckets._s3.cache_clear()
    backend.client.delete_run(here.run_id)
    backend.client.delete_run(there.run_id)
    wait_until(lambda: len(backend.client.deletions()) == 1, "one of them is removed")
    assert [one.run_id for one in backend.client.deletions()] == [there.run_id]


@pytest.mark.thorough
def test_a_deleted_run_leaves_nothing_in_the_bucket_also_if_that_was_away(
    start_backend: Callable[..., Backend],
    bucket: Bucket,
    s3: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(deletion, "BUCKET_AGAIN_SECONDS", 0.5)
    backend = start_backend(checkpoints=bucket.address)
    first, second = saved(backend, bucket, tmp_path), saved(backend, bucket, tmp_path)
    torn = f"run-{first.run_id}/step-2-attempt-1/model/model.safetensors"
    put(bucket, tmp_path, torn, b"of a worker that was killed")
    s3.stop()
    try:
        backend.client.delete_run(first.run_id)
        with api_error(503, match="does not answer"):
            list(backend.client.download_checkpoint(second.run_id, 1))
        wait_until(lambda: "is still there, and is asked for again" in caplog.text, "the bucket was asked in vain")
        assert [one.run_id for one in backend.client.deletions()] == [first.run_id]
    finally:
        s3.start()
    wait_until(lambda: not backend.client.deletions(), "the run is removed")
    prefix = bucket.address.removeprefix("s3://").partition("/")[2]
    assert s3.keys(f"{prefix}/run-{first.run_id}") == []
    assert len(bucket.keys(f"run-{second.run_id}")) == 4
