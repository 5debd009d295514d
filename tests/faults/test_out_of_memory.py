"""Memory that runs out fails the run with the sizes tried; its process is replaced by a clean one, which takes the next run."""

import psutil
import pytest
from processes import Site, tiny_run, wait_until
from worker_out_of_memory import TRIED

from backend.contract.records import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.thorough]

PATIENCE = 240.0  # a worker loads its libraries up to three times
ROOM = 600 * 2**20
"""Bytes that a worker may take beside those of a small run."""
TOO_LARGE = {"prompts_per_step": 64, "group_size": 128}
"""Completions whose keys and values alone take twice that."""


def end_of(site: Site, **changes: object) -> Run:
    run = site.client.create_run(tiny_run(2, **changes))
    wait_until(lambda: site.client.run(run.id).status in {"finished", "failed"}, f"run {run.id} ends", PATIENCE)
    return site.client.run(run.id)


def assert_failed_once_and_the_next_run_finishes(site: Site, failed: Run, process: psutil.Process) -> str:
    """What the run says."""
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.code == "out_of_memory"
    assert "group_size" in failed.error.message  # what to do
    assert failed.attempt == 1
    assert end_of(site).status == "finished"
    assert process.is_running()
    (log,) = site.home.glob("*worker*.log")
    assert log.read_text().count("starting again with a clean process") == 1
    return failed.error.message


@pytest.mark.long
def test_memory_that_runs_out_in_sampling(site: Site) -> None:
    site.backend()
    process = psutil.Process(site.worker().pid)
    assert end_of(site).status == "finished"
    process.rlimit(psutil.RLIMIT_AS, (process.memory_info().vms + ROOM, -1))
    said = assert_failed_once_and_the_next_run_finishes(site, end_of(site, sampling=TOO_LARGE), process)
    assert "tried to allocate" in said


def test_memory_that_runs_out_in_the_backward_pass(site: Site) -> None:
    site.backend()
    process = psutil.Process(site.worker(module="tests.faults.worker_out_of_memory").pid)
    said = assert_failed_once_and_the_next_run_finishes(site, end_of(site), process)
    assert f"tried to allocate {TRIED} bytes" in said
    assert "worker.main" in process.cmdline()
