"""Claims: many processes at once never get the same run, and a worker that dies with its claim in hand keeps it from nobody."""

import multiprocessing
import sqlite3
from contextlib import closing
from pathlib import Path
from queue import Queue

import pytest
from acting import GRPO, Actor
from processes import TOKEN, Site, tiny_run

from backend.contract.client import Client

pytestmark = pytest.mark.slow

Claimed = tuple[str, int, int]


def work(url: str, name: str, together: "multiprocessing.synchronize.Barrier", claimed: "Queue[list[Claimed]]") -> None:
    """Claim until nothing waits: worker, run and attempt of each claim."""
    mine: list[Claimed] = []
    with Client(url, TOKEN) as client:
        actor = Actor(client, name)
        together.wait(timeout=60)
        while (claim := actor.claim()) is not None:
            mine.append((name, claim.run_id, claim.attempt))
    claimed.put(mine)


@pytest.mark.parametrize(("processes", "runs"), [(4, 60), pytest.param(16, 500, marks=pytest.mark.long)])
def test_every_run_is_claimed_once_by_one_of_many_processes(tmp_path: Path, processes: int, runs: int) -> None:
    with Site(tmp_path / "home", lease_seconds=600) as site:
        site.backend()
        for first in range(0, runs, 100):
            site.client.create_sweep("many", [{"config": GRPO}] * min(100, runs - first))
        forked = multiprocessing.get_context("fork")
        together, claimed = forked.Barrier(processes), forked.Queue()
        workers = [
            forked.Process(target=work, args=(site.url, f"worker {number}", together, claimed), daemon=True)
            for number in range(processes)
        ]
        for worker in workers:
            worker.start()
        found = [claim for _ in workers for claim in claimed.get(timeout=240)]
        for worker in workers:
            worker.join(timeout=60)
            assert worker.exitcode == 0
        assert sorted(run_id for _, run_id, _ in found) == list(range(1, runs + 1))
        assert {attempt for _, _, attempt in found} == {1}
        with closing(sqlite3.connect(site.home / "groupscope.db")) as database:
            kept = database.execute("SELECT worker, run_id, attempt FROM attempt").fetchall()
            assert sorted(kept) == sorted(found), "what each worker heard is what is stored"
            assert database.execute("SELECT DISTINCT status, failures FROM run").fetchall() == [("running", 0)]


@pytest.mark.thorough
def test_a_worker_that_dies_with_its_claim_in_hand_keeps_the_run_from_nobody(site: Site) -> None:
    site.backend()
    run = site.client.create_run(tiny_run(4))
    dead = site.worker(module="tests.faults.worker_dead_after_claim")
    assert dead.wait(timeout=60) == -9
    with closing(sqlite3.connect(site.home / "groupscope.db")) as database:
        begun = database.execute("SELECT from_step, heard_at > claimed_at FROM attempt").fetchall()
    assert begun == [(None, 0)], "neither started nor heard of after its claim"
    found = site.client.run(run.id)
    assert (found.status, found.attempt, found.failures) == ("running", 1, 0)
    site.worker()
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt, ended.failures) == ("finished", 2, 1)
    assert site.reward(run.id).step == list(range(4))
