"""Wall clocks that are a day off, and one that is set back and forth under way: no lease moves, no duration changes.

libfaketime gives each process a clock of its own. SQLite, the kernel's clock of its own and files' times stay as they are.
"""

import os
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from processes import Site, tiny_run, wait_until

from dashboard.charts.series import positions

# `make test-faults` installs the library.
pytestmark = [pytest.mark.slow, pytest.mark.long]

LEASE = 2.0  # seconds
DAY = 86_400
STEPS = ["-1d", "+1d", "+0", "-90", "+90", "+0"]  # where the backend's wall clock stands, one after the other


def library() -> Path:
    """Where Debian puts it."""
    places = [*Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")]
    assert places, (
        "this test needs libfaketime: as root on Debian `make test-faults` installs it; else apt install faketime"
    )
    return places[0]


def clock(setting: str | Path) -> Mapping[str, str]:
    """The environment of a process whose wall clock is off by `setting`, or by what a file says at the moment."""
    where = {"FAKETIME_TIMESTAMP_FILE": str(setting)} if isinstance(setting, Path) else {"FAKETIME": setting}
    return where | {
        "LD_PRELOAD": str(library()),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_NO_CACHE": "1",
        "NO_FAKE_STAT": "1",
    }


def set_to(file: Path, offset: str) -> None:
    """At once: a process never reads half of it."""
    new = file.with_suffix(".new")
    new.write_text(offset + "\n")
    os.replace(new, file)


def told(site: Site) -> float:
    """How far the backend's wall clock is ahead of this process's, in seconds."""
    run = site.client.create_run(tiny_run(1), name="what time is it?")
    site.client.command(run.id, "stop")
    site.client.delete_run(run.id)
    return run.created_at.timestamp() - time.time()


def test_clocks_that_are_off_and_one_that_is_set_back_and_forth_move_no_lease_and_no_duration(tmp_path: Path) -> None:
    site, offset = Site(tmp_path / "home", lease_seconds=LEASE), tmp_path / "offset"
    try:
        set_to(offset, "+0")
        site.backend(**clock(offset))
        runs = [site.client.create_run(tiny_run(100_000, every=20, seed=seed)) for seed in range(2)]
        for setting in ("+1d", "-1d"):
            site.worker(**clock(setting))
        began = time.monotonic()
        for run in runs:
            site.wait_for_step(run.id, 3)
        said = (site.home / "worker.main.log").read_text()
        for day in (-1, 1):  # the library is in place: each worker's log has its own day
            assert f"{datetime.now() + timedelta(days=day):%Y-%m-%d}" in said
        for setting in STEPS:
            set_to(offset, setting)
            away = {"-1d": -DAY, "+1d": DAY}.get(setting, float(setting.removesuffix("d")))
            wait_until(lambda away=away: abs(told(site) - away) < 10, f"the backend's clock is at {setting}")
            reached = [site.client.run(run.id).progress.step for run in runs]
            time.sleep(1.5 * LEASE)  # what a step shortened or stretched would show now
            for run, step in zip(runs, reached, strict=True):
                found = site.wait_for_step(run.id, step + 1)
                assert (found.status, found.attempt, found.failures) == ("running", 1, 0), setting
                assert found.progress.eta_seconds is not None
                assert found.progress.eta_seconds < 100_000 * 60, "by the pace of its steps"
            assert all(worker.alive for worker in site.client.workers()), setting
            assert all(held.until >= held.since for held in site.client.worker_use()), setting
        took = time.monotonic() - began
        for run in runs:
            metrics = site.client.metrics(run.id, names=["step_time"])
            lies = positions(metrics, "step_time", "time", 8)
            assert all(one < other for one, other in pairwise(lies)), "the wall-time axis"
            assert 0 < lies[-1] < took
            site.client.command(run.id, "stop")
        for run in runs:
            ended = site.wait_for_end(run.id)
            assert (ended.status, ended.attempt) == ("stopped", 1)
            assert ended.started_at is not None
            assert ended.finished_at is not None
            assert ended.finished_at >= ended.started_at
            logged = [line.id for line in site.client.logs(run.id).items]
            assert all(one < other for one, other in pairwise(logged))
    finally:
        site.close()
