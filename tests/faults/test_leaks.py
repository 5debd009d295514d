"""Runs and event streams come and go: no process keeps a file, a connection or a thread of them."""

from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
from processes import TOKEN, Site, tiny_run, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

MORE = 2  # what a process may hold at the end beyond what it held at the beginning
POOL = 3 * (8 + 1)  # of the database: its file and two beside it, for each reader that is kept and the writer
WARM = 3  # cycles after which pools and libraries have what they keep


@dataclass(frozen=True)
class Held:
    """What a process and those that it started hold."""

    files: int  # without the database's
    database: int
    threads: int
    processes: int

    @classmethod
    def by(cls, process: psutil.Process) -> "Held":
        family = [process, *process.children(recursive=True)]
        database = sum(Path(file.path).name.startswith("groupscope.db") for one in family for file in one.open_files())
        files = sum(one.num_fds() for one in family) - database
        return cls(files, database, sum(one.num_threads() for one in family), len(family))

    def fits(self, before: "Held") -> bool:
        return (
            self.files <= before.files + MORE
            and self.database <= POOL
            and self.threads <= before.threads + MORE
            and self.processes <= before.processes
        )


def cycle(site: Site, waiting: int) -> int:
    """Watch a run begin and stop it, while the next one waits; the next one's number."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Last-Event-ID": "0"}
    with httpx.stream("GET", f"{site.url}/api/v1/runs/{waiting}/events", headers=headers, timeout=60) as stream:
        next(line for line in stream.iter_lines() if line.startswith("event: step"))
    following = site.client.create_run(tiny_run(100_000, every=0)).id
    site.client.command(waiting, "stop")
    wait_until(lambda: site.client.run(waiting).status == "stopped", f"run {waiting} stops")
    return following


@pytest.mark.parametrize("cycles", [6, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(1200)])])
def test_runs_and_event_streams_that_ended_leave_no_file_and_no_thread_behind(site: Site, cycles: int) -> None:
    processes = [psutil.Process(site.backend().pid), psutil.Process(site.worker().pid)]
    waiting = site.client.create_run(tiny_run(100_000, every=0)).id
    for _ in range(WARM):
        waiting = cycle(site, waiting)
    site.wait_for_step(waiting, 1)
    before = [Held.by(process) for process in processes]
    for _ in range(cycles):
        waiting = cycle(site, waiting)
    site.wait_for_step(waiting, 1)
    wait_until(
        lambda: all(Held.by(process).fits(held) for process, held in zip(processes, before, strict=True)),
        f"after {cycles} cycles, {[Held.by(process) for process in processes]} is at most {MORE} above {before}",
        30,
    )
