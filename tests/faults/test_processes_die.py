"""Processes die, stall and vanish: nothing acknowledged is lost, no two histories mix, the run ends all the same."""

import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest
from processes import Site, standing_still, tiny_run, wait_until

pytestmark = pytest.mark.slow


def live_steps(site: Site, run_id: int) -> list[int]:
    return site.client.metrics(run_id, names=["reward"]).series["reward"].step


def rewards(site: Site, run_id: int) -> list[float | None]:
    return site.client.metrics(run_id, names=["reward"]).series["reward"].value


def intact(home: Path) -> bool:
    with sqlite3.connect(f"file:{home / 'groupscope.db'}?mode=ro", uri=True) as database:
        return bool(database.execute("PRAGMA integrity_check").fetchone() == ("ok",))


@pytest.mark.thorough
def test_a_killed_workers_run_goes_on_from_its_last_checkpoint_although_later_steps_and_one_more_were_not_told(
    site: Site,
) -> None:
    backend = site.backend()
    first = site.held_worker(5, 8)
    run = site.client.create_run(tiny_run(12, every=3))
    site.wait_for_step(run.id, 5)
    with standing_still(backend):  # three steps and a checkpoint
        site.go_on(5, until=8)
        first.kill()
        first.wait()
    site.worker()
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt, ended.failures) == ("finished", 2, 1)
    assert live_steps(site, run.id) == list(range(12))
    undisturbed = site.client.create_run(tiny_run(12, every=3))
    site.wait_for_end(undisturbed.id)
    assert rewards(site, run.id) == rewards(site, undisturbed.id)


@pytest.mark.thorough
def test_a_killed_workers_reward_model_goes_on_with_the_pairs_that_were_sampled(site: Site) -> None:
    config = {
        "kind": "reward_model",
        "pairs": {"kind": "sampled", "prompts": 16, "held_out_prompts": 8, "group_size": 4},
        "budget": {"steps": 8, "pairs_per_step": 4, "eval_every": 4, "checkpoint_every": 3},
    }
    site.backend()
    first = site.held_worker(5)
    run = site.client.create_run(config)
    site.wait_for_step(run.id, 5)
    first.kill()
    first.wait()
    [pairs] = site.home.glob("checkpoints/run-*/pairs.jsonl")
    written = pairs.stat().st_mtime_ns
    site.worker()
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt, ended.failures) == ("finished", 2, 1)
    assert pairs.stat().st_mtime_ns == written
    undisturbed = site.client.create_run(config)
    site.wait_for_end(undisturbed.id)
    histories = [site.client.metrics(one.id, names=["loss", "eval/accuracy"]).series for one in (run, undisturbed)]
    assert histories[0] == histories[1]
    assert histories[0]["loss"].step == list(range(8))


def test_a_killed_backend_loses_nothing_it_acknowledged_and_training_goes_on_meanwhile(site: Site) -> None:
    backend = site.backend()
    site.worker()
    run = site.client.create_run(tiny_run(20, every=10))
    site.wait_for_step(run.id, 4)
    backend.kill()
    backend.wait()
    spools = site.home / "spool"
    spooled = sum(file.stat().st_size for file in spools.rglob("*.jsonl"))
    wait_until(
        lambda: sum(file.stat().st_size for file in spools.rglob("*.jsonl")) > spooled + 20_000,
        "the worker trains on and spools its reports",
    )
    site.backend()
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt, ended.failures) == ("finished", 1, 0)
    assert live_steps(site, run.id) == list(range(20))
    assert intact(site.home)


@pytest.mark.thorough
def test_the_backend_survives_being_killed_again_and_again_under_load(site: Site) -> None:
    backend = site.backend()
    site.worker()
    run = site.client.create_run(tiny_run(60, every=20))
    acknowledged: set[int] = set()
    for milestone in (3, 8, 13, 18):
        site.wait_for_step(run.id, milestone)
        acknowledged |= set(live_steps(site, run.id))
        backend.send_signal(signal.SIGKILL)
        backend.wait()
        assert intact(site.home)
        backend = site.backend()
        assert acknowledged <= set(live_steps(site, run.id))
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt) == ("finished", 1)
    assert live_steps(site, run.id) == list(range(60))


@pytest.mark.thorough
def test_a_paused_worker_whose_lease_ran_out_can_change_nothing_afterwards(site: Site) -> None:
    backend = site.backend()
    stalled = site.held_worker(4, 8)
    run = site.client.create_run(tiny_run(14, every=3))
    site.wait_for_step(run.id, 4)
    with standing_still(backend):  # what the steps from 4 to 7 bring stays with the worker
        site.go_on(4, until=8)
        stalled.send_signal(signal.SIGSTOP)
    successor = site.worker()
    wait_until(lambda: site.client.run(run.id).attempt == 2, "the second worker takes the run")
    ended = site.wait_for_end(run.id)
    assert ended.status == "finished"
    before = (rewards(site, run.id), site.client.run(run.id), len(site.client.checkpoints(run.id)))
    site.go_on(8)
    stalled.send_signal(signal.SIGCONT)
    another = site.client.create_run(tiny_run(2))
    assert site.wait_for_end(another.id).status == "finished"
    wait_until(
        lambda: "left run" in (site.home / "tests.faults.worker_held.log").read_text(), "the stalled worker notices"
    )
    assert (rewards(site, run.id), site.client.run(run.id), len(site.client.checkpoints(run.id))) == before
    assert successor.poll() is None


@pytest.mark.thorough
def test_a_run_that_kills_its_worker_every_time_is_given_up_with_the_reason(site: Site) -> None:
    site.backend()
    run = site.client.create_run(tiny_run(5000, every=0))
    for attempt in (1, 2, 3):
        worker = site.worker()
        wait_until(lambda number=attempt: site.client.run(run.id).attempt == number, f"attempt {attempt}")  # type: ignore[misc]
        wait_until(lambda: site.client.run(run.id).progress.step > 0, "it trains")
        worker.kill()
        worker.wait()
    ended = site.wait_for_end(run.id)
    assert ended.status == "failed"
    assert ended.error is not None
    assert ended.error.code == "worker_lost"


@pytest.mark.thorough
def test_pause_resume_and_stop_take_effect_and_keep_the_history(site: Site) -> None:
    site.backend()
    site.worker()
    run = site.client.create_run(tiny_run(400, every=100))
    site.wait_for_step(run.id, 2)
    site.client.command(run.id, "pause")
    paused = site.wait_for_end(run.id)
    assert paused.status == "paused"
    site.client.command(run.id, "resume")
    site.wait_for_step(run.id, paused.progress.step + 2)
    site.client.command(run.id, "stop")
    wait_until(lambda: site.client.run(run.id).status == "stopped", "it stops")
    steps = live_steps(site, run.id)
    assert steps == list(range(len(steps)))


@pytest.mark.thorough
def test_two_workers_share_a_queue_and_never_a_run(site: Site) -> None:
    site.backend()
    # another machine has a home of its own: only address and token are shared
    elsewhere = site.home.parent / "elsewhere"
    workers: list[subprocess.Popen[bytes]] = [site.worker(), site.worker(home=elsewhere)]
    wait_until(lambda: len(site.client.workers()) == 2, "both are there")
    runs = [site.client.create_run(tiny_run(4, every=0, seed=seed)) for seed in range(6)]
    ended = [site.wait_for_end(run.id) for run in runs]
    assert [(run.status, run.attempt) for run in ended] == [("finished", 1)] * 6
    assert len({run.worker for run in ended}) == 2
    for run in ended:
        assert live_steps(site, run.id) == list(range(4))
    assert all(worker.poll() is None for worker in workers)
