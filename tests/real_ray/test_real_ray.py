"""A real Ray cluster on this machine, two nodes of a CPU each, trains runs and loses what it can lose. `make test-ray` runs it."""

import hashlib
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import TOKEN, Site, tiny_run, wait_until

from backend.contract.records import Run

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1800)]

STEPS, PATIENCE = 40, 900.0  # enough that a run seen at step 5 is still under way
TOGETHER: dict[str, object] = {"compute": {"processes": 2}}


class Nodes:
    """The cluster's raylets; the first is the head."""

    def __init__(self, folder: Path) -> None:
        self.token = folder / "ray-token"
        self.token.write_text(secrets.token_hex(32))
        self.token.chmod(0o600)
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token), "RAY_USAGE_STATS_ENABLED": "0"}
        from ray.cluster_utils import Cluster  # once it can read how it lets others in

        self._cluster: Any = Cluster()
        self.head = self._cluster.add_node(num_cpus=1, include_dashboard=False)
        self.add()

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self) -> None:
        self._second = self._cluster.add_node(num_cpus=1)

    def ranks(self) -> list[psutil.Process]:
        """The processes of runs, on all nodes."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::RayTrainWorker"):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def lose(self) -> None:
        """The second node: its raylet is killed."""
        (raylet,) = self._second.all_processes["raylet"]
        raylet.process.kill()
        raylet.process.wait()  # its processes end once theirs is gone; one that nobody waits for is not

    def take_away(self, seconds: int) -> None:
        """The second node goes as a cloud would take it: announced first, and gone `seconds` later."""
        command = [sys.executable, "-m", "ray.scripts.scripts", "drain-node", "--address", self.address]
        command += ["--node-id", self._second.node_id, "--reason", "DRAIN_NODE_REASON_PREEMPTION"]
        command += ["--reason-message", "a test", "--deadline-remaining-seconds", str(seconds)]
        subprocess.run(command, check=True, timeout=120)

    def close(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as environment:
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_USAGE_STATS_ENABLED"):
            environment.setenv(name, "")  # put back at the end
        one = Nodes(tmp_path_factory.mktemp("ray"))
        yield one
        one.close()


class OnCluster(Site):
    """A site whose worker has a cluster."""

    def __init__(self, home: Path, nodes: Nodes) -> None:
        super().__init__(home, lease_seconds=10, executor="ray", ray_address=nodes.address)
        self.backend()
        self.parent = self.worker()

    def create(self, steps: int = STEPS, **changes: object) -> Run:
        return self.client.create_run(tiny_run(steps, every=2, **changes))

    def drivers(self) -> list[psutil.Process]:
        """Those that lead a run, or wait for one; the oldest first."""
        return sorted(psutil.Process(self.parent.pid).children(), key=lambda one: one.create_time())

    def wait_long_for_step(self, run: Run, step: int) -> None:
        wait_until(lambda: self.client.run(run.id).progress.step >= step, f"step {step}", PATIENCE, longest_pause=0.05)

    def weights(self, run: Run) -> str:
        """The hash of the final weights."""
        (folder,) = (self.home / "checkpoints" / f"run-{run.id}").glob(f"step-{STEPS}-*")
        return hashlib.sha256((folder / "model" / "model.safetensors").read_bytes()).hexdigest()

    def end(self) -> None:
        self.parent.terminate()
        self.parent.wait(120)
        self.close()


@pytest.fixture(scope="module")
def site(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnCluster]:
    one = OnCluster(tmp_path_factory.mktemp("site") / "home", nodes)
    yield one
    sys.stdout.write((one.home / "worker.main.log").read_text(errors="replace")[-20_000:])
    one.end()


@pytest.fixture(scope="module")
def undisturbed(site: OnCluster) -> str:
    """The weights of a run of one process."""
    began = time.monotonic()
    run = site.create()
    ended = site.wait_for_end(run.id, PATIENCE)
    assert (ended.status, ended.attempt) == ("finished", 1), ended.error
    measured("an undisturbed run", began)
    return site.weights(run)


def measured(what: str, began: float) -> None:
    """Printed for docs/ray.md."""
    sys.stdout.write(f"\n{what}: {time.monotonic() - began:.0f} s\n")


def test_two_runs_share_the_cluster_and_nobody_hands_it_a_token(site: OnCluster, nodes: Nodes) -> None:
    began = time.monotonic()
    runs = [site.create(100_000) for _ in range(2)]
    for run in runs:
        site.wait_long_for_step(run, 2)
    measured("two runs under way", began)
    assert {site.client.run(run.id).status for run in runs} == {"running"}
    assert len({site.client.run(run.id).worker for run in runs}) == 2
    ranks = nodes.ranks()
    assert len({rank.ppid() for rank in ranks}) == len(ranks) == 2  # on a node each
    for rank in ranks:
        environment = "".join(f"{name}={value}" for name, value in rank.environ().items())
        assert TOKEN not in environment
        assert nodes.token.read_text() not in environment
    for run in runs:
        site.client.command(run.id, "stop")
    assert {site.wait_for_end(run.id, PATIENCE).status for run in runs} == {"stopped"}
    wait_until(lambda: not nodes.ranks(), "their processes end", PATIENCE)
    written = [file for file in Path("/tmp/ray/session_latest/logs").rglob("*") if file.is_file()]
    assert written
    for secret in (TOKEN, nodes.token.read_text()):
        assert [file for file in written if secret.encode() in file.read_bytes()] == []


@pytest.mark.parametrize("which", ["process", "driver"])
def test_a_run_whose_process_or_driver_is_killed_ends_with_the_weights_of_an_undisturbed_one(
    site: OnCluster, nodes: Nodes, undisturbed: str, which: str
) -> None:
    began = time.monotonic()
    run = site.create()
    site.wait_long_for_step(run, 5)
    (rank,) = nodes.ranks()
    (rank if which == "process" else site.drivers()[0]).kill()
    wait_until(lambda: not rank.is_running(), "its process ends, too", PATIENCE)
    ended = site.wait_for_end(run.id, PATIENCE)
    measured(f"a {which} killed", began)
    assert (ended.status, ended.attempt) == ("finished", 2)
    if which == "process":
        assert ended.failures == 1
        assert "died on the Ray cluster" in site.said(run.id)
    assert site.weights(run) == undisturbed


@pytest.fixture(scope="module")
def of_two_nodes(site: OnCluster) -> str:
    """The weights of an undisturbed run of two processes."""
    run = site.create(**TOGETHER)
    assert site.wait_for_end(run.id, PATIENCE).status == "finished"
    return site.weights(run)


@pytest.mark.parametrize("way", ["killed", "taken away"])
def test_a_run_of_two_nodes_of_which_one_is_lost_waits_for_another_and_ends_with_the_same_weights(
    site: OnCluster, nodes: Nodes, of_two_nodes: str, way: str
) -> None:
    began = time.monotonic()
    run = site.create(**TOGETHER)
    site.wait_long_for_step(run, 5)
    assert len({rank.ppid() for rank in nodes.ranks()}) == 2
    if way == "killed":
        nodes.lose()
    else:
        nodes.take_away(seconds=1)
    wait_until(lambda: site.client.run(run.id).status == "queued", "it is queued again", PATIENCE)
    if way == "taken away":
        nodes.lose()
    nodes.add()
    ended = site.wait_for_end(run.id, PATIENCE)
    measured(f"a node {way}", began)
    assert (ended.status, ended.attempt) == ("finished", 2)
    assert ended.failures == (way == "killed")
    assert ("died on the Ray cluster" in site.said(run.id)) == (way == "killed")
    assert site.weights(run) == of_two_nodes
    wait_until(lambda: not nodes.ranks(), "no process of it is left, on the lost node either", PATIENCE)


def test_a_worker_that_is_asked_to_end_gives_its_run_back_at_a_step(
    site: OnCluster, nodes: Nodes, undisturbed: str
) -> None:
    run = site.create()
    site.wait_long_for_step(run, 5)
    site.parent.terminate()
    assert site.parent.wait(300) == 0
    assert site.client.run(run.id).status == "queued"
    assert nodes.ranks() == []
    given_back = site.client.checkpoints(run.id)[-1].step
    site.parent = site.worker()
    ended = site.wait_for_end(run.id, PATIENCE)
    assert (ended.status, ended.attempt, ended.failures) == ("finished", 2, 0)
    assert f"resumed from checkpoint {given_back} on" in site.said(run.id)
    assert site.weights(run) == undisturbed


def test_a_sample_is_a_job_too(site: OnCluster) -> None:
    sample = site.client.create_run({"kind": "sample", "prompts": ["Calculate 2 + 2 x 6"], "group_size": 2})
    assert site.wait_for_end(sample.id, PATIENCE).status == "finished"
    assert len(site.client.groups(sample.id).items) == 1


def test_who_has_another_token_is_not_let_in(nodes: Nodes, site: OnCluster, tmp_path: Path) -> None:
    other = tmp_path / "other-token"
    other.write_text(secrets.token_hex(32))
    command = [sys.executable, "-m", "worker.main", "--executor", "ray", "--ray-address", nodes.address]
    environment = os.environ | {
        "RAY_AUTH_TOKEN_PATH": str(other),
        "GROUPSCOPE_HOME": str(tmp_path / "home"),
        "GROUPSCOPE_TOKEN": TOKEN,
    }
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 1
    assert f"groupscope: the Ray cluster at {nodes.address} cannot be used: " in ended.stderr
