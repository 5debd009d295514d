"""One of the processes of a run dies or hangs: the attempt ends, and the next one ends where nothing had happened."""

import hashlib
import os
import signal
from pathlib import Path
from random import Random

import pytest
from processes import Site, ranks_of, tiny_run, wait_until

from backend.contract.records import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STEPS = 40  # enough that a run is still under way when its process is killed
TOGETHER = {"GROUPSCOPE_PROCESSES": "2"}


def create(site: Site) -> Run:
    return site.client.create_run(tiny_run(STEPS, every=2, compute={"processes": 2}))


def final_weights(site: Site, run_id: int) -> str:
    (folder,) = (site.home / "checkpoints" / f"run-{run_id}").glob(f"step-{STEPS}-*")
    return hashlib.sha256((folder / "model" / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_runs_of_two_processes_of_which_one_is_killed_end_with_the_weights_of_an_undisturbed_one(
    site: Site, times: int
) -> None:
    site.backend()
    worker = site.worker(**TOGETHER)
    undisturbed = create(site)
    assert site.wait_for_end(undisturbed.id).status == "finished"
    random = Random(times)
    for _ in range(times):
        run = create(site)
        site.wait_for_step(run.id, random.randrange(STEPS // 2))
        os.kill(random.choice(ranks_of(worker.pid)), signal.SIGKILL)
        ended = site.wait_for_end(run.id)
        assert (ended.status, ended.attempt, ended.failures) == ("finished", 2, 1)
        assert final_weights(site, run.id) == final_weights(site, undisturbed.id)
    assert worker.poll() is None
    assert ranks_of(worker.pid) == []


@pytest.mark.parametrize("which", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_process_that_stands_still_ends_the_attempt_by_the_deadline_and_the_next_one_goes_on(
    site: Site, which: int
) -> None:
    site.backend()
    worker = site.worker(**TOGETHER, GROUPSCOPE_SILENCE_SECONDS="10")
    run = create(site)
    site.wait_for_step(run.id, 4)
    ranks = ranks_of(worker.pid)
    os.kill(ranks[which], signal.SIGSTOP)
    wait_until(lambda: site.client.run(run.id).attempt == 2, "the attempt is ended")
    said = [line.message for line in site.client.logs(run.id).items]
    assert any("No sign of life" in line and "for 10 s" in line for line in said)
    assert site.wait_for_end(run.id).status == "finished"
    assert worker.poll() is None  # the same process id
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)


def test_a_stop_ends_a_run_of_two_processes_at_a_step_and_a_retry_goes_on_with_it(site: Site) -> None:
    site.backend()
    worker = site.worker(**TOGETHER)
    run = site.client.create_run(tiny_run(400, every=100, compute={"processes": 2}))
    site.wait_for_step(run.id, 3)
    site.client.command(run.id, "pause")
    wait_until(lambda: site.client.run(run.id).status == "paused", "it is paused")
    at = site.client.checkpoints(run.id)[-1].step
    assert at >= 3
    assert ranks_of(worker.pid) == []
    site.client.command(run.id, "resume")
    site.wait_for_step(run.id, at + 2)
    site.client.command(run.id, "stop")
    assert site.wait_for_end(run.id).status == "stopped"


def test_a_worker_leaves_a_run_of_more_processes_than_it_offers(site: Site) -> None:
    site.backend()
    site.worker(**TOGETHER)
    large = site.client.create_run(tiny_run(1, compute={"processes": 3}))
    small = site.client.create_run(tiny_run(1))
    assert site.wait_for_end(small.id).status == "finished"
    assert site.client.run(large.id).status == "queued"
