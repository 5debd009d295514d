"""The jobs of deploy/slurm on a real Slurm: each way in which it takes a node away, and every run finishes."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster import ROOT, Cluster
from processes import TOKEN, Site, tiny_run, wait_until

from backend.contract.records import Run

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

RUN, NODES = (str(ROOT / "deploy/slurm" / name) for name in ("run.sbatch", "nodes.sbatch"))
LONG = 150  # steps of 0.4 s and more
SLOW = "slow_rewards:slow"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("slurm")) as one:
        yield one


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    one = Site(tmp_path / "home", lease_seconds=5)
    (one.home / "token").write_text(TOKEN)
    (one.home / "token").chmod(0o600)
    one.backend()
    yield one
    one.close()


@pytest.fixture
def submit(cluster: Cluster, site: Site) -> Callable[..., str]:
    """Submits a job with what docs/deploy/slurm.md says of its environment."""

    def submitted(*job: str) -> str:
        environment = {
            "GROUPSCOPE_HOME": str(site.home),
            "GROUPSCOPE_BACKEND_URL": site.url,
            "GROUPSCOPE_REWARD_FUNCTIONS": SLOW,
            "GROUPSCOPE_REWARD_PATH": str(Path(__file__).parent),
            "OMP_NUM_THREADS": "1",
        }
        return cluster.submit(f"--output={site.home}/job-%j.log", *job, **environment)

    return submitted


@pytest.fixture(autouse=True)
def figures(request: pytest.FixtureRequest, site: Site) -> Iterator[None]:
    began = time.monotonic()
    yield
    for run in site.client.runs().items:
        sys.stdout.write(
            f"\n{request.node.name}: {run.status} in attempt {run.attempt}, {time.monotonic() - began:.0f} s\n"
        )


def slow_run(every: int = LONG, **changes: object) -> dict[str, object]:
    reward = {"name": "slow", "kind": "python", "function": SLOW}
    return tiny_run(LONG, every=every, rewards={"functions": [reward]}, **changes)


def finished(site: Site, cluster: Cluster, run: Run, job: str) -> Run:
    """The run, once it and the job have ended well."""
    ended = site.wait_for_end(run.id)
    log = (site.home / f"job-{job}.log").read_text()
    assert ended.status == "finished", log
    wait_until(
        lambda: cluster.job(job)["JobState"] == "COMPLETED", f"job {job} is completed: {cluster.job(job)}\n{log}"
    )
    return ended


def test_a_job_trains_one_run_and_is_completed(cluster: Cluster, site: Site, submit: Callable[..., str]) -> None:
    runs = [site.client.create_run(tiny_run(3)) for _ in range(2)]
    job = submit(RUN)
    assert finished(site, cluster, runs[0], job).attempt == 1
    assert site.client.run(runs[1].id).status == "queued"


def test_a_job_near_its_time_limit_saves_waits_again_and_goes_on(
    cluster: Cluster, site: Site, submit: Callable[..., str]
) -> None:
    run = site.client.create_run(slow_run())
    job = submit("--time=60", "--signal=TERM@20", RUN)
    reached = site.wait_for_step(run.id, 3).progress.step
    minutes, seconds = map(int, cluster.job(job)["RunTime"].split(":")[1:])
    cluster.command("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes + (seconds + 30) // 60 + 1}")
    wait_until(lambda: cluster.job(job)["Restarts"] == "1", "its time is nearly over")
    assert site.client.run(run.id).status == "queued"
    assert site.client.checkpoints(run.id)[0].step >= reached
    cluster.command("scontrol", "update", f"JobId={job}", "TimeLimit=60")
    ended = finished(site, cluster, run, job)
    assert (ended.attempt, ended.failures) == (2, 0)
    assert site.reward(run.id).step == list(range(LONG))


@pytest.mark.parametrize("job_of", [(RUN,), ("--gpus-per-node=1", NODES)], ids=["one node", "two nodes"])
def test_a_job_on_one_node_or_two_that_is_preempted_saves_makes_room_and_goes_on(
    cluster: Cluster, site: Site, submit: Callable[..., str], job_of: tuple[str, ...]
) -> None:
    run = site.client.create_run(slow_run(compute={"processes": len(job_of)}))
    job = submit(*job_of)
    reached = site.wait_for_step(run.id, 3).progress.step
    urgent = submit("--partition=high", "--nodes=2", "--exclusive", "--wrap=sleep 5")
    wait_until(lambda: cluster.job(urgent)["JobState"] == "COMPLETED", "the urgent job has run")
    assert site.client.checkpoints(run.id)[0].step >= reached
    ended = finished(site, cluster, run, job)
    assert (ended.attempt, ended.failures) == (2, 0)


def test_a_job_that_is_queued_again_gives_its_run_back_and_goes_on(
    cluster: Cluster, site: Site, submit: Callable[..., str]
) -> None:
    run = site.client.create_run(slow_run())
    job = submit(RUN)
    site.wait_for_step(run.id, 3)
    cluster.command("scontrol", "requeue", job)
    assert finished(site, cluster, run, job).attempt == 2


def test_a_node_that_fails_costs_one_attempt_and_the_run_goes_on_elsewhere(
    cluster: Cluster, site: Site, submit: Callable[..., str]
) -> None:
    run = site.client.create_run(slow_run(every=20))
    job = submit(RUN)
    site.wait_for_step(run.id, 25)
    node = cluster.job(job)["BatchHost"]
    cluster.kill(node)
    ended = finished(site, cluster, run, job)
    assert (ended.attempt, ended.failures) == (2, 1)
    assert cluster.job(job)["BatchHost"] != node
    cluster.start_node(node)
