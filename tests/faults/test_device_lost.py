"""An error of CUDA ends all work of a process on its GPU: a clean process takes its place, the run goes on, and the next one trains."""

import psutil
import pytest
from processes import Site, tiny_run
from worker_device_lost import ERRORS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.thorough]


@pytest.mark.parametrize(
    "error", ["assert", *(pytest.param(name, marks=pytest.mark.long) for name in ERRORS if name != "assert")]
)
def test_a_lost_device_replaces_the_process_and_the_run_goes_on(site: Site, error: str) -> None:
    site.backend()
    worker = site.worker(module="tests.faults.worker_device_lost", TEST_CUDA_ERROR=error)
    run = site.client.create_run(tiny_run(6, every=2))
    assert site.wait_for_end(run.id).status == "finished"
    ended = site.client.run(run.id)
    assert (ended.attempt, ended.failures) == (2, 1)
    log = [line.message for line in site.client.logs(run.id).items]
    assert any(str(ERRORS[error]) in line for line in log)
    assert any("resumed from checkpoint 2" in line for line in log)
    another = site.client.create_run(tiny_run(2))
    assert site.wait_for_end(another.id).attempt == 1
    process = psutil.Process(worker.pid)
    assert "worker.main" in process.cmdline()
    (written,) = site.home.glob("*worker*.log")
    assert written.read_text().count("starting again with a clean process") == 1
