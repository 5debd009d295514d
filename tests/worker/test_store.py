"""Checkpoints with a bucket behind their folder, on a real S3 server: what other machines get, and what never counts."""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from unittest.mock import Mock

import pytest
from processes import free_port, wait_until
from pydantic import BaseModel
from s3_server import S3Server

from backend.bucket import bucket as buckets
from backend.bucket.bucket import MANIFEST, Bucket, BucketTrouble
from backend.contract.protocol import CheckpointReport, Report
from backend.contract.records import Progress
from worker.checkpoint import Saved, complete_checkpoint, damage
from worker.compute import _fetch_bases
from worker.errors import Interrupted, RunFailure
from worker.reporter import Channels, Place, Reporter
from worker.rollout.engine import quiet
from worker.store import Store
from worker.uploads import MOST_WAITING, Uploads

PATH = "run-7/step-20-attempt-1"
FILES = {"model/config.json": b"{}", "model/model.safetensors": b"w" * 300_000, "optimizer.safetensors": b"o" * 100}


def saved(store: Store, path: str = PATH, files: dict[str, bytes] = FILES) -> Saved:
    """A checkpoint in the store's folder alone."""
    folder = store.folder / path
    for name, content in files.items():
        file = folder.with_name(f".{folder.name}.partial") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return complete_checkpoint(folder)


def uploaded(store: Store, path: str = PATH, files: dict[str, bytes] = FILES) -> Saved:
    one = saved(store, path, files)
    store.upload(one.folder, set(), lambda count: None)
    return one


@pytest.fixture
def here(bucket: Bucket, tmp_path: Path) -> Store:
    return Store(tmp_path / "here", bucket, 2**30)


@pytest.fixture
def there(bucket: Bucket, tmp_path: Path) -> Store:
    """Of another machine."""
    return Store(tmp_path / "there", bucket, 2**30)


def test_a_checkpoint_reaches_another_machine_as_it_was_saved_the_model_alone_first(here: Store, there: Store) -> None:
    one = uploaded(here)
    shown: list[tuple[str, int, int]] = []
    assert there.fetch(PATH, one.sha256, part="model/", show=lambda *what: shown.append(what)) is None
    assert {phase for phase, _, _ in shown} == {"fetch"}
    assert not there.has(PATH)
    assert there.fetch(PATH, one.sha256) is None
    assert there.has(PATH)
    (there.folder / PATH / "optimizer.safetensors").write_bytes(b"other")  # damaged on this disk: it is mended
    assert there.fetch(PATH, one.sha256) is None
    assert damage(there.folder / PATH, one.sha256) is None
    assert {name: (there.folder / PATH / name).read_bytes() for name in FILES} == FILES


def test_an_upload_that_is_cut_short_at_any_object_is_no_checkpoint_and_is_cleared_away(
    here: Store, there: Store, bucket: Bucket
) -> None:
    one = saved(here)
    for objects in range(len(FILES) + 1):
        with pytest.raises(Interrupted):
            here.upload(one.folder, set(), Mock(side_effect=[*[None] * objects, Interrupted]))
        if objects < len(FILES):
            assert there.fetch(PATH, one.sha256) == "it is not in the bucket"
            here.remove_unfinished(7, before=1)
            assert bucket.keys("run-7"), "what this attempt writes is not removed"
            here.remove_unfinished(7, before=2)
            assert bucket.keys("run-7") == []


def test_what_was_uploaded_before_an_outage_is_not_uploaded_again(here: Store) -> None:
    one, done, sizes = saved(here), {"model/model.safetensors"}, list[int]()
    here.upload(one.folder, done, sizes.append)
    assert sum(sizes) < 300_000
    assert done == {*FILES, MANIFEST}


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_what_is_damaged_in_the_bucket_or_missing_there_is_named_and_not_used(
    here: Store, there: Store, bucket: Bucket, name: str, tmp_path: Path
) -> None:
    one = uploaded(here)
    torn = tmp_path / "torn"
    torn.write_bytes((one.folder / name).read_bytes()[:-1] + b"x")
    bucket.put(f"{PATH}/{name}", torn)
    differs = f"hash of {MANIFEST} in the bucket differs" if name == MANIFEST else f"hash of {name} differs"
    assert there.fetch(PATH, one.sha256) == differs
    buckets._s3().delete_file(bucket._path(f"{PATH}/{name}"))
    wrong = there.fetch(PATH, one.sha256)
    assert wrong == ("it is not in the bucket" if name == MANIFEST else f"{name} is not in the bucket")


@pytest.mark.parametrize(
    ("content", "damage"),
    [
        *((one, "in the bucket is not a manifest") for one in ("torn {", "[]", "{}", '{"files": {"config.json": 1}}')),
        ('{"files": {"../../outside": {"size": 2, "sha256": "0"}}}', "names the file '../../outside'"),
    ],
)
def test_what_is_no_manifest_or_leads_out_of_its_folder_is_damage_also_if_nobody_knows_its_hash(
    there: Store, bucket: Bucket, tmp_path: Path, content: str, damage: str
) -> None:
    (tmp_path / MANIFEST).write_text(content)
    bucket.put(f"{PATH}/{MANIFEST}", tmp_path / MANIFEST)
    assert there.fetch(PATH, None) == f"manifest.json {damage}"


@pytest.mark.thorough
def test_a_bucket_that_is_away_is_waited_for_and_a_stop_ends_the_wait(here: Store, there: Store, s3: S3Server) -> None:
    one = uploaded(here)
    s3.stop()

    def stopped(phase: str, done: int, total: int) -> None:
        if phase == "bucket":
            raise Interrupted

    def back(phase: str, done: int, total: int) -> None:
        if phase == "bucket" and not s3.running:
            s3.start()

    try:
        with pytest.raises(Interrupted):
            there.fetch(PATH, one.sha256, show=stopped)
        assert there.fetch(PATH, one.sha256, show=back) is None
    finally:
        if not s3.running:
            s3.start()


def test_a_bucket_that_refuses_ends_the_run_in_words(
    here: Store, there: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = uploaded(here)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    buckets._s3.cache_clear()
    with pytest.raises(RunFailure, match="ACCESS_DENIED", check=lambda one: one.code == "bucket_refused"):
        there.fetch(PATH, one.sha256)


def test_what_the_backend_forgot_goes_here_and_in_the_bucket_and_what_waits_to_be_registered_stays(
    here: Store, bucket: Bucket
) -> None:
    kept, gone = "run-7/step-20-attempt-1", ["run-7/step-40-attempt-1", "run-7/step-90-attempt-1"]
    waiting = "run-7/step-60-attempt-2"
    for path in (kept, *gone, waiting):
        uploaded(here, path)
    here.remove(7, [kept], upto=(2, 40))
    assert {"/".join(key.split("/")[:2]) for key in bucket.keys("run-7")} == {kept, waiting}
    assert sorted(f"run-7/{folder.name}" for folder in (here.folder / "run-7").iterdir()) == sorted([kept, waiting])


@pytest.mark.thorough
def test_what_cannot_be_removed_now_ends_nothing_and_goes_beside_the_next_one(
    here: Store, bucket: Bucket, s3: S3Server
) -> None:
    for step in (20, 40, 60):
        uploaded(here, f"run-7/step-{step}-attempt-1")
    s3.stop()
    here.remove(7, ["run-7/step-40-attempt-1"], upto=(1, 40))
    s3.start()
    here.remove(7, ["run-7/step-60-attempt-1"], upto=(1, 60))
    assert {key.split("/")[1] for key in bucket.keys("run-7")} == {"step-60-attempt-1"}


def test_copies_make_room_the_longest_unused_first_but_not_what_is_in_use_or_waits(here: Store) -> None:
    store = Store(here.folder, here.bucket, most_bytes=650_000)
    paths = [f"run-7/step-{step}-attempt-1" for step in (1, 2, 3, 4)]
    now = time.time()
    for age, path in enumerate(reversed(paths)):
        saved(store, path)
        os.utime(store.folder / path, (now - 10_000 - age, now - 10_000 - age))
    with store.held(store.folder / paths[0]):  # it waits for the bucket, also if another worker of this home looks
        store.make_room()
    assert [(store.folder / path).exists() for path in paths] == [True, False, False, True]
    Store(here.folder, here.bucket).make_room()
    assert not any((store.folder / path).exists() for path in paths)
    saved(store, paths[0])
    Store(here.folder, here.bucket).make_room()
    assert (store.folder / paths[0]).exists(), "somebody may be reading it"


def test_what_is_fetched_takes_the_room_of_what_was_used_longest_ago_but_not_what_its_run_fetched_before(
    here: Store, there: Store
) -> None:
    paths = [f"run-{run}/step-1-attempt-1" for run in (7, 8, 9)]
    hashes = {path: uploaded(here, path).sha256 for path in paths}
    there = Store(there.folder, there.bucket, most_bytes=200_000)
    old, before, now = paths
    assert there.fetch(old, hashes[old]) is None
    os.utime(there.folder / old, (0, 0))
    assert there.fetch(before, hashes[before]) is None
    folder, long = there.folder / before, time.time() - 2000

    def slow(phase: str, done: int, total: int) -> None:
        os.utime(folder, (long, long))

    assert there.fetch(now, hashes[now], show=slow) is None
    assert sorted(path.parent.name for path in there.folder.glob("run-*/step-*")) == ["run-8", "run-9"]


def test_a_checkpoint_is_fetched_once_for_all_processes_of_a_machine(here: Store, there: Store) -> None:
    one = uploaded(here)
    folder = there.folder / PATH
    folder.mkdir(parents=True)
    other = os.open(folder, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)  # another process fetches it

    def fetched(phase: str, done: int, total: int) -> None:
        assert (phase, total) == ("fetch", 0), "nothing is fetched while it waits"
        if not (folder / MANIFEST).exists():
            for name in FILES:
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(FILES[name])
            (folder / MANIFEST).write_bytes((one.folder / MANIFEST).read_bytes())
            os.close(other)

    assert there.fetch(PATH, one.sha256, show=fetched) is None


def test_the_checkpoints_under_an_adapter_come_with_it(here: Store, there: Store) -> None:
    base = "run-5/step-1-attempt-1"
    uploaded(here, base)
    settings = json.dumps({"base_model_name_or_path": f"{base}/model"}).encode()
    one = uploaded(here, PATH, {"model/adapter_config.json": settings})
    assert there.fetch(PATH, one.sha256) is None
    assert _fetch_bases(there, PATH, lambda *_: None) is None
    assert (there.folder / base / "model" / "model.safetensors").exists()
    assert not (there.folder / base / "optimizer.safetensors").exists()


def test_what_a_run_keeps_beside_its_checkpoints_is_found_by_the_next_worker(here: Store, there: Store) -> None:
    pairs, found = (store.folder / "run-7" / "pairs.jsonl" for store in (here, there))
    there.find(found, lambda *_: None)
    assert not found.exists()
    pairs.parent.mkdir(parents=True)
    pairs.write_bytes(b"pairs")
    here.share(pairs, lambda *_: None)
    there.find(found, lambda *_: None)
    assert found.read_bytes() == b"pairs"


class Heard(Uploads):
    """Uploads that are tried again soon, and what they tell."""

    def __init__(self, store: Store) -> None:
        self.registered, self.said = list[int](), list[str]()
        super().__init__(store, lambda step, _: self.registered.append(step), lambda _, text: self.said.append(text))


@pytest.fixture
def uploads(here: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    monkeypatch.setattr("worker.uploads.pauses", lambda: repeat(0.1))
    one = Heard(here)
    yield one
    one.leave()


def test_checkpoints_of_an_outage_wait_are_said_once_and_are_registered_in_order(
    here: Store, uploads: Heard, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.uploads.HURRIED_SECONDS", 1.0)
    s3.stop()
    try:
        for step in range(1, MOST_WAITING + 1):
            uploads.add(step, saved(here, f"run-7/step-{step}-attempt-1"))
        wait_until(lambda: uploads.said, "the outage is said")
        shown: list[tuple[int, int]] = []
        assert not uploads.wait(lambda *what: shown.append(what), hurried=lambda: True)
        assert shown
        assert uploads.registered == []
    finally:
        s3.start()
    assert uploads.wait(lambda *_: None)
    assert uploads.registered == list(range(1, MOST_WAITING + 1))
    assert len(uploads.said) == 2
    assert "checkpoint 1 is not in the bucket yet" in uploads.said[0]
    assert uploads.said[1] == "checkpoint 1 is in the bucket now"
    for folder in here.folder.glob("run-7/*"):
        os.utime(folder, (0, 0))
    Store(here.folder, here.bucket).make_room()
    assert not list(here.folder.glob("run-7/*")), "what is in the bucket makes room"


def test_what_an_outage_cut_short_is_not_counted_twice(
    here: Store, uploads: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload, tries, counted = Store.upload, iter(range(3)), list[int]()

    def cut(store: Store, folder: Path, uploaded: set[str], on_bytes: Callable[[int], None]) -> None:
        counted.append(uploads._bytes)
        if next(tries, None) is not None:  # in the midst of the second file
            uploaded.add("model/config.json")
            on_bytes(2 + 200_000)
            raise BucketTrouble("away", away=True)
        upload(store, folder, uploaded, on_bytes)

    monkeypatch.setattr(Store, "upload", cut)
    one = saved(here)
    uploads.add(1, one)
    assert uploads.wait(lambda *_: None)
    assert counted == [0, 2, 2, 2], "what is whole in the bucket"
    assert uploads._bytes == one.size_bytes == uploads._total


def test_an_upload_that_nobody_waits_for_ends_and_registers_nothing(
    here: Store, uploads: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload: Callable[..., None] = Store.upload

    def leaving(store: Store, *given: object) -> None:
        uploads.leave()
        upload(store, *given)

    monkeypatch.setattr(Store, "upload", leaving)
    uploads.add(1, saved(here))
    uploads.thread.join(30)
    assert not uploads.thread.is_alive()
    assert uploads.registered == []


def test_a_checkpoint_that_cannot_be_read_any_more_ends_the_run(here: Store, uploads: Heard) -> None:
    one = saved(here)
    (one.folder / "optimizer.safetensors").unlink()
    uploads.add(1, one)
    assert not uploads.wait(lambda *_: None)
    with pytest.raises(FileNotFoundError):
        uploads.check()


def test_an_attempt_that_ends_before_the_bucket_is_back_says_so_and_registers_nothing(
    here: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.uploads.HURRIED_SECONDS", 0.5)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    buckets._s3.cache_clear()
    sent: list[BaseModel] = []
    shown: list[Progress] = []
    channels = Channels(lambda _, message: sent.append(message), shown.append, lambda: "nothing", quiet, lambda: True)
    place = Place(7, 1, here, "store", None, "CPU", {})
    with Reporter(place, channels, total_steps=20, elapsed=0.0) as reporter:
        reporter.checkpoint(20, lambda: saved(here))
    assert {progress.phase for progress in shown} == {"checkpoint"}
    assert not any(isinstance(message, CheckpointReport) for message in sent)
    lines = [line.message for message in sent if isinstance(message, Report) for line in message.logs]
    assert "ended before its newest checkpoint was in the bucket" in lines[-1]
