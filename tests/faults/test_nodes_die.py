"""One run on two nodes: two workers with a home of their own each, which share the checkpoints and nothing else."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from pairs import HELD, STEPS, Pair, create, trained
from processes import Site, free_port, kill, ranks_of, tiny_run, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def node(site: Site, rank: int, rendezvous: str, **environment: str) -> subprocess.Popen[bytes]:
    """One of two nodes. The other's home is not node 0's, and it has no token: it is node 0 that speaks with the backend."""
    home = site.home
    if rank:
        home = site.home.parent / f"node-{rank}"
        home.mkdir(exist_ok=True)
        if not (home / "checkpoints").is_symlink():
            (home / "checkpoints").symlink_to(site.home / "checkpoints")
        environment |= {"GROUPSCOPE_TOKEN": ""}
    nodes = {"GROUPSCOPE_NODES": "2", "GROUPSCOPE_NODE_RANK": str(rank), "GROUPSCOPE_RENDEZVOUS": rendezvous}
    module = "tests.faults.worker_held" if "TEST_HELD_AT" in environment else "worker.main"
    return site.worker(home, module=module, **nodes, **environment)


def both(site: Site, **environment: str) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes], str]:
    address = f"127.0.0.1:{free_port()}"
    return node(site, 0, address, **environment), node(site, 1, address, **environment), address


@pytest.mark.thorough
def test_a_run_of_two_processes_on_two_nodes_equals_one_on_one_node_and_ends_both_for_one_run(
    site: Site, undisturbed: Pair
) -> None:
    site.backend()
    on_two = create(site)
    address = f"127.0.0.1:{free_port()}"
    first = node(site, 0, address, GROUPSCOPE_ONCE="true", GROUPSCOPE_IDLE_EXIT="0.5")
    log = site.home / "worker.main.log"
    wait_until(lambda: "waiting for the nodes [1]" in log.read_text(), "it waits until the other one has started")
    wait_until(lambda: [one.missing_nodes for one in site.client.workers()] == [[1]], "so does the page of workers")
    assert site.client.run(on_two.id).status == "queued"
    second = node(site, 1, address, GROUPSCOPE_ONCE="true")
    assert (first.wait(timeout=300), second.wait(timeout=300)) == (0, 0)
    ended = site.client.run(on_two.id)
    assert (ended.status, ended.attempt) == ("finished", 1)
    assert trained(site, on_two.id) == undisturbed
    assert not (site.home.parent / "node-1" / "spool").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "which", ["a process on the other node", pytest.param("the other node", marks=pytest.mark.long)]
)
def test_a_run_on_two_nodes_of_which_one_dies_goes_on_once_it_is_back(site: Site, which: str) -> None:
    site.backend()
    leader, follower, address = both(site, TEST_HELD_AT=str(HELD))
    run = create(site)
    site.wait_for_held(HELD, site.home.parent / "node-1")
    if which == "the other node":
        (rank,) = ranks_of(follower.pid)
        kill(follower)
        wait_until(lambda: not Path(f"/proc/{rank}").exists(), "its process ends with it")
        wait_until(lambda: site.client.run(run.id).status == "queued", "the attempt is ended")
        node(site, 1, address)
    else:
        os.kill(ranks_of(follower.pid)[0], signal.SIGKILL)
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt, ended.failures) == ("finished", 2, 1)
    assert site.client.checkpoints(run.id)[-1].step == STEPS
    assert leader.poll() is None


@pytest.mark.long
def test_a_node_that_is_asked_to_end_gives_the_run_back_and_ends_all(site: Site) -> None:
    site.backend()
    leader, follower, _ = both(site, GROUPSCOPE_ONCE="true")
    run = site.client.create_run(tiny_run(400, every=400, compute={"processes": 2}))
    site.wait_for_step(run.id, 3)
    follower.terminate()
    assert (follower.wait(timeout=300), leader.wait(timeout=300)) == (75, 75)
    back = site.client.run(run.id)
    assert (back.status, back.failures) == ("queued", 0)
    assert site.client.checkpoints(run.id)[-1].step >= 3


@pytest.mark.long
def test_nodes_outlive_the_first_one_and_take_no_run_until_all_are_there(site: Site) -> None:
    site.backend()
    leader, follower, address = both(site)
    run = create(site, 40)
    site.wait_for_step(run.id, 3)
    kill(leader)
    wait_until(lambda: ranks_of(follower.pid) == [], "its processes end")
    node(site, 0, address)
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt) == ("finished", 2)
    assert follower.poll() is None
