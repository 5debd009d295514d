"""Backups: of a home in use, as of one moment, whole or not at all; and homes made of them."""

import itertools
import json
import os
import shutil
import tarfile
import threading
from collections.abc import Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import pytest
from acting import Actor, began
from processes import Site, tiny_run, wait_until
from processes import site as a_site
from recorded import finish, queue, train
from serving import Backend, Backends

from backend.contract.client import ApiError, Unreachable
from backend.operations import backup
from backend.operations.backup import CannotBackUp, back_up, restore
from backend.settings import Settings
from backend.storage.opening import open_database
from worker.rewards.own_modules import folder_refusal

site = pytest.fixture(a_site)


def quiet(_: str) -> None:
    """Progress that nobody reads."""


def recorded(backend: Backend) -> None:
    """A finished run of three steps."""
    run = queue(backend.client)
    finish(backend.client, run, train(backend.client, run, steps=3, total=3, prompts=2, group_size=3, traced=True))


@pytest.fixture(scope="module")
def backed_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Backend, Path]]:
    """A home with a finished run, its token traces, and an upload, for tests that change nothing; and an archive of it."""
    folder = tmp_path_factory.mktemp("backed up")
    with Backends(folder / "home") as backends:
        backend = backends.start()
        recorded(backend)
        backend.client.upload("sums.jsonl", b'{"prompt": "1+1=", "answer": "2"}\n')
        (backend.home / "token").write_text("the-token-of-this-home")
        made = back_up(backend.home, folder / "backup.tar", quiet)
        assert (made.runs, made.vanished) == (1, ())
        yield backend, folder / "backup.tar"


@pytest.fixture
def archive(backed_up: tuple[Backend, Path], tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copy(backed_up[1], tmp_path))


def test_a_restored_home_answers_as_the_one_that_was_backed_up_which_is_never_restored_over(
    backed_up: tuple[Backend, Path], tmp_path: Path
) -> None:
    backend, archive = backed_up
    home = tmp_path / "restored"
    restore(archive, home, quiet)
    assert (home / "token").read_text() == "the-token-of-this-home"
    with Backends(home) as backends:
        other = backends.start()
        assert list(other.client.export(1)) == list(backend.client.export(1))
        assert other.client.uploads() == backend.client.uploads()
        assert other.client.upload_content(1) == backend.client.upload_content(1)
        group = next(iter(backend.client.groups(1).items))
        completion = backend.client.group(group.id).completions[0].id
        assert other.client.tokens(completion) == backend.client.tokens(completion)
    before = (backend.home / "token").read_bytes()
    with pytest.raises(CannotBackUp, match="exists and is not empty"):
        restore(archive, backend.home, quiet)
    assert (backend.home / "token").read_bytes() == before, "it is in no backup"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a#b", "a?b", "a%41b", "a b", "ü"])
def test_a_home_of_any_name_holds_all_that_it_has_and_so_does_its_backup(tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    store = home / "checkpoints"
    home.mkdir()
    database = open_database(Settings(home=home).resolved_database_url, busy_seconds=5.0)
    database.close()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with Backends(home) as backends:
        backend = backends.start()
        actor = began(backend.client, store=f"{store}#ab12")
        actor.report(0)
        actor.save(1)
        model = store / f"run-{actor.run_id}" / "step-1" / "model"
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
        (store / "store-id").write_text("ab12")
        assert list(backend.client.download_checkpoint(actor.run_id, 1))
        back_up(home, tmp_path / "backup.tar", quiet)
    other = tmp_path / f"{name} restored"
    restore(tmp_path / "backup.tar", other, quiet)
    with Backends(other) as backends:
        assert list(backends.start().client.download_checkpoint(actor.run_id, 1))


def save(actor: Actor, store: Path, step: int) -> None:
    """Write and register a checkpoint, and remove what the backend forgot beside it, as a worker does."""
    folder = store / f"run-{actor.run_id}" / f"step-{step}"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(f"of step {step}")
    kept = actor.save(step).kept or ()
    for path in folder.parent.iterdir():
        if f"{folder.parent.name}/{path.name}" not in kept:
            shutil.rmtree(path)


@pytest.fixture
def keeper(backend: Backend) -> Actor:
    """A run that keeps its newest checkpoint alone, after step 1."""
    backend.client.create_run({"kind": "grpo", "budget": {"steps": 9, "keep": {"last": 1, "best": False}}})
    actor = Actor(backend.client, store=f"{backend.home.resolve()}/checkpoints#ab12").begin()
    actor.report(0)
    save(actor, backend.home / "checkpoints", 1)
    return actor


def checkpoints_in(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        return [name for name in tar.getnames() if "/step-" in name]


def test_a_checkpoint_that_a_run_removes_while_the_backup_is_made_is_in_it(
    backend: Backend, keeper: Actor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied, store = backup._copy_database, backend.home / "checkpoints"

    def then_train_on(*given: Any) -> None:
        copied(*given)
        save(keeper, store, 2)

    monkeypatch.setattr(backup, "_copy_database", then_train_on)
    made = back_up(backend.home, tmp_path / "backup.tar", quiet)
    assert (made.vanished, checkpoints_in(tmp_path / "backup.tar")) == ((), ["checkpoints/run-1/step-1/manifest.json"])
    assert [path.name for path in store.iterdir()] == ["run-1"], "no link stays"


def test_a_backup_is_of_a_moment_at_which_every_checkpoint_is_there(
    backend: Backend, keeper: Actor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, steps = backup.hold, iter((2, 3))

    def trained_on(store: Path, paths: list[str], folder: Path) -> bool:
        for step in itertools.islice(steps, 1):
            save(keeper, store, step)
        return held(store, paths, folder)

    monkeypatch.setattr(backup, "hold", trained_on)
    made = back_up(backend.home, tmp_path / "backup.tar", quiet)
    assert (made.vanished, checkpoints_in(tmp_path / "backup.tar")) == ((), ["checkpoints/run-1/step-3/manifest.json"])


def test_a_checkpoint_that_is_half_deleted_or_missing_is_named_and_hinders_no_backup_of_the_others(
    backend: Backend, keeper: Actor, tmp_path: Path
) -> None:
    store = backend.home / "checkpoints"
    [manifest] = store.glob("run-1/*/manifest.json")
    manifest.write_text('{"files": {"model.safetensors": {"size": 1, "sha256": ""}}}')
    assert not backup.hold(store, ["run-1/step-1"], tmp_path / "held")
    made = back_up(backend.home, tmp_path / "backup.tar", quiet)
    assert made.vanished == ("checkpoints/run-1/step-1/model.safetensors",)
    shutil.rmtree(store / "run-1")
    left = store / f".backup-{2**22 + 1}" / "run-1"  # of a backup that was killed: no process has this number
    left.mkdir(parents=True)
    made = back_up(backend.home, tmp_path / "second.tar", quiet)
    assert made.vanished == ("checkpoints/run-1/step-1/manifest.json",)
    assert list(store.iterdir()) == []


def test_a_manifest_that_names_what_lies_elsewhere_takes_nothing_from_there(
    backend: Backend, keeper: Actor, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("of another user")
    [manifest] = (backend.home / "checkpoints").glob("run-1/*/manifest.json")
    (manifest.parent / "link").symlink_to(tmp_path / "secret")
    (manifest.parent / "there").symlink_to(tmp_path, target_is_directory=True)
    outside = ["link"], ["there/secret"], ["../../../../secret"], [str(tmp_path / "secret")], ["link", 7]
    for names in (*outside, [7], [["link"]], [""], [f"./{manifest.name}"], ["\0"], ["\ud800"], [2 * "x/" * 999]):
        manifest.write_text(json.dumps({"files": names}))
        back_up(backend.home, tmp_path / "backup.tar", quiet)
        assert b"of another user" not in (tmp_path / "backup.tar").read_bytes()
        restore(tmp_path / "backup.tar", tmp_path / "restored", quiet)
        shutil.rmtree(tmp_path / "restored")
        (tmp_path / "backup.tar").unlink()


def test_the_settings_and_a_persons_rewards_are_in_a_backup_and_no_link_out_of_their_folder(
    backend: Backend, tmp_path: Path
) -> None:
    (backend.home / ".env").write_text("GROUPSCOPE_TOKEN=long-enough-for-a-token\n")
    folder, disk = backend.home / "rewards", tmp_path / "disk"
    folder.mkdir()
    (folder / "own.py").write_text("def reward(completion):\n    return 1\n")
    (folder / "words.txt").write_text("one\n")
    (tmp_path / "secret.py").write_text("")
    (folder / "secret.py").symlink_to(tmp_path / "secret.py")
    back_up(backend.home, tmp_path / "backup.tar", quiet)
    (disk / "lost+found").mkdir(parents=True)
    before = os.umask(0o002)
    try:
        restore(tmp_path / "backup.tar", disk, quiet)
    finally:
        os.umask(before)
    assert (disk / ".env").read_text() == "GROUPSCOPE_TOKEN=long-enough-for-a-token\n"
    assert (disk / ".env").stat().st_mode & 0o077 == 0
    assert folder_refusal(disk / "rewards") is None  # a worker uses it
    assert sorted(path.name for path in (disk / "rewards").iterdir()) == ["own.py", "words.txt"]
    assert (disk / "rewards" / "own.py").read_text() == (folder / "own.py").read_text()


def report_until(stop: threading.Event, backend: Backend, name: str, acknowledged: list[tuple[int, int]]) -> None:
    """A worker that reports steps as fast as they are taken; what was acknowledged is noted afterwards."""
    actor = Actor(backend.client, name, store=f"/{name}").begin()
    step = 0
    while not stop.is_set():
        try:
            actor.report(step, metrics={"reward": float(step)})
        except (Unreachable, ApiError):  # not acknowledged: sent again, as a spool does
            continue
        acknowledged.append((actor.run_id, step))
        step += 1


@pytest.mark.slow
@pytest.mark.parametrize(("pages", "enough"), [(1, 40), pytest.param(backup.PAGES, 4_000, marks=pytest.mark.long)])
def test_a_backup_taken_while_four_workers_report_holds_every_row_acknowledged_before_it_began(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int, enough: int
) -> None:
    monkeypatch.setattr(backup, "PAGES", pages)  # one: as many steps as gigabytes take, each with commits between
    for _ in range(4):
        backend.client.create_run({"kind": "grpo", "budget": {"steps": 100_000}})
    stop, acknowledged = threading.Event(), list[tuple[int, int]]()
    workers = [threading.Thread(target=report_until, args=(stop, backend, f"w{n}", acknowledged)) for n in range(4)]
    for worker in workers:
        worker.start()
    try:
        wait_until(lambda: len(acknowledged) >= enough, "enough is acknowledged")
        during = 0
        for _ in range(100):  # until one of them had reports in its midst
            (tmp_path / "backup.tar").unlink(missing_ok=True)
            before = list(acknowledged)
            back_up(backend.home, tmp_path / "backup.tar", quiet)
            during = len(acknowledged) - len(before)
            if during:
                break
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert during > 0, "the workers went on while the backup was made"
    home = tmp_path / "restored"
    restore(tmp_path / "backup.tar", home, quiet)
    with Backends(home) as backends:
        restored = backends.start()
        rows = {
            (run.id, step)
            for run in restored.client.runs().items
            for step in restored.client.metrics(run.id, names=["reward"]).series["reward"].step
        }
        with restored.services.database.read() as tx:
            assert tx.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"
            assert tx.exec_driver_sql("PRAGMA foreign_key_check").all() == []
    assert set(before) <= rows
    assert rows <= set(acknowledged) | {(run, step + 1) for run, step in acknowledged}


def test_a_run_deleted_while_the_backup_is_made_is_left_out_and_named(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(backend)
    copied = backup._copy_database

    def then_delete(*given: object) -> None:
        copied(*given)  # type: ignore[arg-type]
        for trace in (backend.home / "traces").rglob("*.parquet"):
            trace.unlink()

    monkeypatch.setattr(backup, "_copy_database", then_delete)
    made = back_up(backend.home, tmp_path / "second.tar", quiet)
    assert all(name.startswith("traces/1/") for name in made.vanished)
    assert made.vanished != ()
    restore(tmp_path / "second.tar", tmp_path / "restored", quiet)


@pytest.mark.parametrize("share", [0.2, 0.6, 0.98])
def test_an_archive_that_was_cut_off_makes_no_home(archive: Path, tmp_path: Path, share: float) -> None:
    with tarfile.open(archive) as tar:  # after its last file there are only zeros, which may be all that 2 % are
        end = max(member.offset_data + member.size for member in tar)
    archive.write_bytes(archive.read_bytes()[: int(end * share)])
    with pytest.raises(CannotBackUp, match=r"cut off|cannot be read"):
        restore(archive, tmp_path / "restored", quiet)
    assert not (tmp_path / "restored").exists()
    assert not list(tmp_path.glob(".restored*"))


def test_an_archive_with_one_flipped_bit_makes_no_home(archive: Path, tmp_path: Path) -> None:
    data = bytearray(archive.read_bytes())
    with tarfile.open(archive) as tar:
        data[tar.getmember("uploads/1.jsonl").offset_data + 3] ^= 1
    archive.write_bytes(data)
    with pytest.raises(CannotBackUp, match=r"damaged: uploads/1\.jsonl"):
        restore(archive, tmp_path / "restored", quiet)


def archived(folder: Path, files: dict[str, bytes]) -> None:
    """foreign.tar in a folder, with these files."""
    with tarfile.open(folder / "foreign.tar", "w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, BytesIO(data))


def is_refused(folder: Path, words: str) -> None:
    """foreign.tar becomes no home, and nothing else is made of it."""
    with pytest.raises(CannotBackUp, match=words):
        restore(folder / "foreign.tar", folder / "home", quiet)
    assert [path.name for path in folder.iterdir()] == ["foreign.tar"]


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "uploads/../../evil", "elsewhere/x", "uploads//x", "."])
def test_a_foreign_archive_writes_nothing_outside_the_home(tmp_path: Path, name: str) -> None:
    archived(tmp_path, {name: b"evil"})
    is_refused(tmp_path, "not a backup")


@pytest.mark.parametrize("manifest", [b"", b"{", b"[]", b"{}", b'{"files": {"token": 1}}', b"\xff", b"[" * 100_000])
def test_an_archive_whose_manifest_says_nothing_makes_no_home(tmp_path: Path, manifest: bytes) -> None:
    archived(tmp_path, {backup.MANIFEST: manifest})
    is_refused(tmp_path, "its manifest cannot be read")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("uploads/1.jsonl", b"{}", "it holds no groupscope.db"),
        ("groupscope.db", b"", "not a Groupscope database, or is damaged: no such table"),
        ("groupscope.db", b"x" * 5000, "not a Groupscope database, or is damaged: file is not a database"),
    ],
)
def test_an_archive_without_a_database_of_groupscope_makes_no_home(
    tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    manifest = {"files": {name: {"size": len(data), "sha256": sha256(data).hexdigest()}}}
    archived(tmp_path, {name: data, backup.MANIFEST: json.dumps(manifest).encode()})
    is_refused(tmp_path, words)


@pytest.mark.parametrize("name", [backup.MANIFEST, "uploads/1.jsonl"])
@pytest.mark.parametrize("sparse", [True, False])
def test_a_member_that_says_more_than_the_archive_has_is_not_read(tmp_path: Path, name: str, *, sparse: bool) -> None:
    member = tarfile.TarInfo(name)
    member.size = 2**40
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    if sparse:  # the old form of GNU tar: no data, one hole of a terabyte
        header[156:157], header[483:495] = tarfile.GNUTYPE_SPARSE, header[124:136]
        header[124:136] = b"00000000000\0"
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "foreign.tar").write_bytes(bytes(header) + bytes(1024))
    is_refused(tmp_path, f"it holds '{name}'" if sparse else "would be larger than the archive")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("size", [2**40, 2**70])
def test_a_header_that_says_more_than_the_archive_has_is_refused(tmp_path: Path, kind: bytes, size: int) -> None:
    member = tarfile.TarInfo("uploads/1.jsonl")
    member.type, member.size = kind, size
    (tmp_path / "foreign.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    is_refused(tmp_path, "cannot be read as a backup")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_pipes_in_an_archive_are_refused(tmp_path: Path, kind: bytes) -> None:
    with tarfile.open(tmp_path / "foreign.tar", "w") as tar:
        member = tarfile.TarInfo("uploads/1.jsonl")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    is_refused(tmp_path, "not a backup")


def test_an_empty_folder_that_nothing_can_take_the_place_of_becomes_the_home(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, link = tmp_path / "disk", tmp_path / "link"
    disk.mkdir()
    link.symlink_to(disk)
    restore(archive, link, quiet)
    assert link.is_symlink()
    expected = {path.name for path in disk.iterdir()}
    assert {"groupscope.db", "token", "traces", "uploads"} <= expected

    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    restore(archive, Path("."), quiet)
    assert {path.name for path in here.iterdir()} == expected


def test_a_damaged_database_is_not_backed_up_as_if_it_were_whole(archive: Path, tmp_path: Path) -> None:
    home = tmp_path / "damaged"
    restore(archive, home, quiet)
    archive.unlink()
    data = bytearray((home / "groupscope.db").read_bytes())
    data[8192:40960] = bytes(32768)
    (home / "groupscope.db").write_bytes(data)
    with pytest.raises(CannotBackUp, match=r"damaged|cannot be copied"):
        back_up(home, tmp_path / "backup.tar", quiet)
    assert [path.name for path in tmp_path.glob("*.tar")] == []


def test_a_backup_needs_room_and_a_free_name_is_its_owners_alone_and_not_there_before_it_is_whole(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(backend.home, tmp_path / "backup.tar", quiet)
    assert (tmp_path / "backup.tar").stat().st_mode & 0o777 == 0o600
    with pytest.raises(CannotBackUp, match="exists already"):
        back_up(backend.home, tmp_path / "backup.tar", quiet)
    with pytest.raises(CannotBackUp, match="--home"):
        back_up(tmp_path / "nothing-here", tmp_path / "second.tar", quiet)

    def fail(*_: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup, "_write_archive", fail)
    with pytest.raises(OSError, match="No space"):
        back_up(backend.home, tmp_path / "second.tar", quiet)
    monkeypatch.setattr(backup, "SPARE_BYTES", 2**60)
    with pytest.raises(CannotBackUp, match="free some space"):
        back_up(backend.home, tmp_path / "second.tar", quiet)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.tar", "home"]


@pytest.mark.thorough
@pytest.mark.slow
def test_a_run_that_was_training_goes_on_in_a_home_that_was_restored_elsewhere(site: Site, tmp_path: Path) -> None:
    site.backend()
    worker = site.held_worker(5)
    run = site.client.create_run(tiny_run(8, every=3))
    site.wait_for_step(run.id, 5)
    back_up(site.home, tmp_path / "backup.tar", quiet)
    worker.kill()
    saved = max(one.step for one in site.client.checkpoints(run.id))
    site.close()
    restore(tmp_path / "backup.tar", tmp_path / "elsewhere", quiet)
    with Site(tmp_path / "elsewhere") as other:
        other.backend()
        kept = [one.step for one in other.client.checkpoints(run.id)]
        assert kept
        assert max(kept) <= saved
        other.worker()
        ended = other.wait_for_end(run.id)
        assert (ended.status, ended.attempt) == ("finished", 2)
        assert other.client.metrics(run.id, names=["reward"]).series["reward"].step == list(range(8))
        starts = [line.message for line in other.client.logs(run.id).items if "checkpoint" in line.message]
        assert any(f"step {max(kept)}" in line or "from" in line for line in starts), starts
