"""One of the processes of a run dies or hangs: the attempt ends, and the next one ends where nothing had happened."""

import os
import re
import signal
from pathlib import Path
from random import Random

import pytest
from pairs import HELD, Pair, create, trained
from processes import Site, ranks_of, tiny_run, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOGETHER = {"GROUPSCOPE_PROCESSES": "2"}


@pytest.mark.thorough
def test_a_run_of_two_processes_of_which_one_is_killed_ends_with_the_weights_of_an_undisturbed_one(
    site: Site, undisturbed: Pair
) -> None:
    """The other one waits for it in the middle of a step."""
    site.backend()
    worker = site.held_worker(HELD, **TOGETHER)
    run = create(site)
    site.wait_for_held(HELD)
    os.kill(ranks_of(worker.pid)[1], signal.SIGKILL)
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt, ended.failures) == ("finished", 2, 1)
    assert trained(site, run.id) == undisturbed
    assert worker.poll() is None
    assert ranks_of(worker.pid) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_runs_of_two_processes_of_which_either_is_killed_at_any_moment_go_on(site: Site) -> None:
    """Of more steps than anybody waits for: none is over before the kill."""
    site.backend()
    worker = site.worker(**TOGETHER)
    random = Random(10)
    for _ in range(10):
        run = create(site, 4000)
        wait_until(lambda: len(ranks_of(worker.pid)) == 2, "both are there")
        site.wait_for_step(run.id, random.randrange(10))
        os.kill(random.choice(ranks_of(worker.pid)), signal.SIGKILL)
        wait_until(lambda run=run: site.client.run(run.id).attempt == 2, "the attempt is ended")
        site.wait_for_step(run.id, site.client.run(run.id).progress.step + 2)
        site.client.command(run.id, "stop")
        ended = site.wait_for_end(run.id)
        assert (ended.status, ended.attempt, ended.failures) == ("stopped", 2, 1)
        wait_until(lambda: not ranks_of(worker.pid), "both are gone")
    assert worker.poll() is None


@pytest.mark.thorough
@pytest.mark.parametrize("which", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_process_that_stands_still_ends_the_attempt_by_the_deadline_and_the_next_ones_end_when_they_are_asked_to(
    site: Site, which: int
) -> None:
    site.backend()
    worker = site.worker(module="tests.faults.worker_quick", **TOGETHER, GROUPSCOPE_SILENCE_SECONDS="5")
    run = create(site, 4000)
    site.wait_for_step(run.id, HELD)
    ranks = ranks_of(worker.pid)
    os.kill(ranks[which], signal.SIGSTOP)
    wait_until(lambda: site.client.run(run.id).attempt == 2, "the attempt is ended")
    assert re.search("No sign of life.*for 5 s", site.said(run.id))
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)
    wait_until(lambda: site.client.checkpoints(run.id)[-1].attempt == 2, "the next attempt has made steps")
    site.client.command(run.id, "pause")
    assert site.wait_for_end(run.id).status == "paused"
    at = site.client.checkpoints(run.id)[-1].step
    assert at >= HELD + 1
    assert ranks_of(worker.pid) == []
    site.client.command(run.id, "resume")
    site.wait_for_step(run.id, at + 1)
    site.client.command(run.id, "stop")
    assert site.wait_for_end(run.id).status == "stopped"
    steps = site.reward(run.id).step
    assert steps == list(range(len(steps)))


def test_a_worker_leaves_a_run_of_more_processes_than_it_offers(site: Site) -> None:
    site.backend()
    site.worker(**TOGETHER)
    large = site.client.create_run(tiny_run(1, compute={"processes": 3}))
    assert site.run_to_end(tiny_run(1)).status == "finished"
    assert site.client.run(large.id).status == "queued"
