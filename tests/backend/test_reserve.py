"""A full disk, or a quota that is used up: what frees space, stops, or says how a run ended is stored all the same, and nothing else uses that room."""

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from acting import GRPO, Actor, api_error, began, group
from serving import Backend
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from backend import reserve
from backend.contract.client import ApiError
from backend.reserve import Reserve


def sqlite_says_full() -> sqlite3.OperationalError:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("PRAGMA max_page_count=1")
        with pytest.raises(sqlite3.OperationalError) as caught:
            database.execute("CREATE TABLE a (b)")
    return caught.value


def sqlite_says_io_error() -> sqlite3.OperationalError:
    """What it says of EDQUOT, and of a disk that is broken."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR | 3 << 8  # SQLITE_IOERR_WRITE
    return error


class Disk:
    """Of the database: while it is full, or broken, nothing is written; giving up the reserve makes room on a full one."""

    def __init__(self, backend: Backend, monkeypatch: pytest.MonkeyPatch, *, quota: bool) -> None:
        self.full = self.broken = False
        give_up, sync = Reserve.give_up, os.fsync
        io_error = sqlite_says_io_error()
        error = io_error if quota else sqlite_says_full()

        def give_room(kept: Reserve) -> bool:
            given = give_up(kept)
            self.full = self.full and not given
            return given

        def refuse(_connection: object, _cursor: object, statement: str, *_: Any) -> None:
            if (self.full or self.broken) and statement.startswith(("INSERT", "UPDATE", "DELETE")):
                raise OperationalError(statement, None, io_error if self.broken else error)

        def force(descriptor: int) -> None:
            if self.full:
                raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
            sync(descriptor)

        monkeypatch.setattr(Reserve, "give_up", give_room)
        monkeypatch.setattr(os, "fsync", force)
        event.listen(backend.services.database.writer, "before_cursor_execute", refuse)


@pytest.fixture(params=["disk", "quota"])
def disk(backend: Backend, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Disk:
    backend.services.reserve.take()
    return Disk(backend, monkeypatch, quota=request.param == "quota")


def prepared(backend: Backend, needed: str) -> Callable[[], object]:
    """What frees space, or ends a run; all that it needs is there."""
    client = backend.client
    if needed == "delete an upload":
        upload_id = client.upload("a", b'{"a": 1}\n').id
        return lambda: client.delete_upload(upload_id)
    if needed == "stop a sweep":
        sweep_id = client.create_sweep("a", [{"config": GRPO}]).id
        return lambda: client.stop_sweep(sweep_id)
    run_id = client.create_run(GRPO).id
    if needed in ("stop", "pause"):
        return lambda: client.command(run_id, needed)
    actor = Actor(client).begin()
    if needed == "delete":
        actor.report(0)
        actor.finish()
        return lambda: client.delete_run(run_id)
    if needed in ("fail", "finish"):
        return actor.fail if needed == "fail" else actor.finish
    client.ending.add((actor.run_id, actor.attempt))
    return lambda: (actor.report if needed == "the last report" else actor.report_two)(0, groups=[group()])


NEEDED = pytest.mark.parametrize(
    "needed",
    [
        *("delete", "delete an upload", "stop", "pause", "stop a sweep"),
        *("fail", "finish", "the last report", "the last reports"),
    ],
)


@NEEDED
def test_what_frees_space_or_ends_a_run_is_stored_on_a_full_disk(backend: Backend, disk: Disk, needed: str) -> None:
    act = prepared(backend, needed)
    disk.full = True
    act()
    assert not (backend.home / "reserve").exists()


@NEEDED
def test_without_a_reserve_a_full_disk_is_said_and_nothing_changes(backend: Backend, disk: Disk, needed: str) -> None:
    act = prepared(backend, needed)
    (backend.home / "reserve").unlink()
    disk.full = True
    with api_error(507, "disk_full"):
        act()
    disk.full = False
    act()


def test_reports_and_new_runs_take_nothing_of_the_reserve(backend: Backend, disk: Disk) -> None:
    actor = began(backend.client)
    disk.full = True
    for act in (
        lambda: actor.report(0, groups=[group()]),
        lambda: actor.report_two(0),
        lambda: backend.client.create_run(GRPO),
        actor.beat,
    ):
        with pytest.raises(ApiError, match="The disk is full"):
            act()
    assert (backend.home / "reserve").exists()


def test_a_broken_disk_is_not_taken_for_a_full_one(backend: Backend, disk: Disk) -> None:
    run_id = backend.client.create_run(GRPO).id
    disk.broken = True
    with pytest.raises(ApiError, match="its log says why"):
        backend.client.command(run_id, "stop")
    assert (backend.home / "reserve").exists()


def test_a_start_under_a_quota_that_is_used_up_has_the_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Reserve(tmp_path)
    kept.take()

    def force(_descriptor: int) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "fsync", force)
    kept.give_up_if_full()
    assert list(tmp_path.iterdir()) == []
    assert "the quota of" in str(reserve.no_room(tmp_path))


def test_the_reserve_is_real_room_and_is_taken_again_once_there_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Reserve(tmp_path)
    kept.take()
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= reserve.BYTES
    kept.give_up_if_full()
    assert (tmp_path / "reserve").exists(), "there is room"
    assert kept.give_up()
    assert not kept.give_up(), "it can be used once"
    with monkeypatch.context() as patch:
        patch.setattr(reserve, "LEAST_FREE", 2**60)
        kept.take()
        assert list(tmp_path.iterdir()) == []
    kept.take()
    with monkeypatch.context() as patch:
        patch.setattr(reserve, "FULL", 2**60)
        kept.give_up_if_full()
    assert list(tmp_path.iterdir()) == []
