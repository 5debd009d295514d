"""Database, checkpoints and spool on one small disk that is full: it is said, nothing is damaged, space can be made, all goes on."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from processes import Site, assert_failed, kill, tiny_run, wait_until

from backend import reserve
from worker.checkpoint import damage

pytestmark = pytest.mark.long  # mounts a file system, for which it is root

MIB = 2**20
STEPS = 200  # a few seconds: the disk is full before they are done


class SmallDisk:
    """A file system of its own, with a home on it, and a file that takes what is free."""

    def __init__(self, mount: Path) -> None:
        self.mount, self._filler = mount, mount / "filler"

    @property
    def free(self) -> int:
        found = os.statvfs(self.mount)
        return found.f_bavail * found.f_frsize

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as file:
            for size in (MIB, 4096, 1):
                with suppress(OSError):
                    while file.write(b"x" * size) == size:
                        pass

    def make_room(self) -> None:
        self._filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(mount)], check=True)
    yield SmallDisk(mount)
    subprocess.run(["/bin/umount", "-l", str(mount)], check=True)


@pytest.fixture
def small(disk: SmallDisk) -> Iterator[Site]:
    one = Site(disk.mount / "home")
    (one.home / "backend.app.log").symlink_to(disk.mount.parent / "log")  # what it says finds room
    yield one
    one.close()


def checkpoints_are_whole(site: Site, run_id: int) -> list[int]:
    saved = site.client.checkpoints(run_id)
    assert [damage(site.home / "checkpoints" / one.path) for one in saved] == [None] * len(saved)
    return [one.step for one in saved]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_on_a_full_disk_fails_in_words_space_can_be_made_and_it_goes_on(
    disk: SmallDisk, small: Site, processes: int
) -> None:
    site, kept = small, disk.mount / "home" / "reserve"
    backend = site.backend()
    wait_until(kept.exists, "the reserve is taken")  # after five checkpoints there is no room for it
    worker = site.worker(GROUPSCOPE_PROCESSES=str(processes))
    old = site.run_to_end(tiny_run(4, every=2))
    config = tiny_run(STEPS, every=2, compute={"processes": processes})
    budget = {**config["budget"], "keep": {"last": 3, "best": False}}  # type: ignore[dict-item]
    run = site.client.create_run({**config, "budget": budget})
    waiting = site.client.create_run(tiny_run(2))
    wait_until(lambda: len(site.client.checkpoints(run.id)) >= 2, "two checkpoints are saved")
    disk.fill()
    failed = site.wait_for_end(run.id)
    said = assert_failed(failed, "disk_full", "The worker's disk is full")
    assert (processes == 2) or f": {site.home}, " in said
    kept.unlink(missing_ok=True)  # not used if what did not fit of a checkpoint gave enough back
    steps = checkpoints_are_whole(site, run.id)
    assert len(steps) >= 2
    assert not list(site.home.glob("checkpoints/run-*/.*.partial"))
    assert site.intact()

    for process in (worker, backend):
        kill(process)
    disk.fill()
    assert site.start_backend().wait(60) == 1, "without the reserve it cannot start"
    assert "is full (0 bytes free), and the database cannot be written" in (disk.mount.parent / "log").read_text()
    disk.make_room()
    backend = site.backend()
    wait_until(kept.exists, "the reserve is taken again")
    disk.fill()
    kill(backend)
    site.backend()
    assert site.intact()
    site.client.command(waiting.id, "stop")
    before = disk.free
    site.client.delete_run(old.id)
    wait_until(lambda: disk.free > before + MIB, "its checkpoints are gone from the disk")
    wait_until(lambda: not site.client.deletions(), "its rows are removed")
    assert site.intact()

    disk.make_room()
    site.worker(GROUPSCOPE_PROCESSES=str(processes))
    site.client.command(run.id, "retry")
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.error) == ("finished", None)
    assert site.reward(run.id).step == list(range(STEPS))
    assert f"resumed from checkpoint {steps[-1]} " in site.said(run.id), "the one before the disk was full"
    assert checkpoints_are_whole(site, run.id) == [STEPS - 4, STEPS - 2, STEPS]
    assert not list(site.home.glob("checkpoints/run-*/.*.partial"))
    wait_until(kept.exists, "the reserve is taken again")
    assert kept.stat().st_size == reserve.BYTES
