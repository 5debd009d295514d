"""Processes die, stall, vanish and are restarted, and answers get lost: the run ends all the same.

Nothing acknowledged is lost, no two histories mix, and only a death without a word costs an attempt.
"""

import signal
import subprocess
from itertools import count
from pathlib import Path

import pytest
from lossy_wire import Wire
from processes import Site, assert_failed, kill, standing_still, tiny_run, wait_until

pytestmark = pytest.mark.slow


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
        kill(first)
    site.worker()
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt, ended.failures) == ("finished", 2, 1)
    assert site.reward(run.id).step == list(range(12))
    undisturbed = site.run_to_end(tiny_run(12, every=3))
    assert site.reward(run.id).value == site.reward(undisturbed.id).value


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
    kill(first)
    [pairs] = site.home.glob("checkpoints/run-*/pairs.jsonl")
    written = pairs.stat().st_mtime_ns
    site.worker()
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt, ended.failures) == ("finished", 2, 1)
    assert pairs.stat().st_mtime_ns == written
    undisturbed = site.run_to_end(config)
    histories = [site.client.metrics(one.id, names=["loss", "eval/accuracy"]).series for one in (run, undisturbed)]
    assert histories[0] == histories[1]
    assert histories[0]["loss"].step == list(range(8))


def test_a_killed_backend_loses_nothing_it_acknowledged_and_training_goes_on_meanwhile(site: Site) -> None:
    backend = site.backend()
    site.worker()
    run = site.client.create_run(tiny_run(20, every=10))
    site.wait_for_step(run.id, 4)
    kill(backend)
    spools = site.home / "spool"
    spooled = sum(file.stat().st_size for file in spools.rglob("*.jsonl"))
    wait_until(
        lambda: sum(file.stat().st_size for file in spools.rglob("*.jsonl")) > spooled + 20_000,
        "the worker trains on and spools its reports",
    )
    site.backend()
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt, ended.failures) == ("finished", 1, 0)
    assert site.reward(run.id).step == list(range(20))
    assert site.intact()


@pytest.mark.thorough
def test_the_backend_survives_being_killed_again_and_again_under_load(site: Site) -> None:
    backend = site.backend()
    site.worker()
    run = site.client.create_run(tiny_run(60, every=20))
    acknowledged: set[int] = set()
    for milestone in (3, 8, 13, 18):
        site.wait_for_step(run.id, milestone)
        acknowledged |= set(site.reward(run.id).step)
        kill(backend)
        assert site.intact()
        backend = site.backend()
        assert acknowledged <= set(site.reward(run.id).step)
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt) == ("finished", 1)
    assert site.reward(run.id).step == list(range(60))


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
    before = (site.reward(run.id).value, site.client.run(run.id), len(site.client.checkpoints(run.id)))
    site.go_on(8)
    stalled.send_signal(signal.SIGCONT)
    assert site.run_to_end(tiny_run(2)).status == "finished"
    wait_until(
        lambda: "left run" in (site.home / "tests.faults.worker_held.log").read_text(), "the stalled worker notices"
    )
    assert (site.reward(run.id).value, site.client.run(run.id), len(site.client.checkpoints(run.id))) == before
    assert successor.poll() is None


@pytest.mark.thorough
def test_a_run_that_kills_its_worker_every_time_is_given_up_with_the_reason(site: Site) -> None:
    site.backend()
    run = site.client.create_run(tiny_run(5000, every=0))
    for attempt in (1, 2, 3):
        worker = site.worker()
        wait_until(lambda number=attempt: site.client.run(run.id).attempt == number, f"attempt {attempt}")  # type: ignore[misc]
        wait_until(lambda: site.client.run(run.id).progress.step > 0, "it trains")
        kill(worker)
    assert_failed(site.wait_for_end(run.id), "worker_lost")


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
        assert site.reward(run.id).step == list(range(4))
    assert all(worker.poll() is None for worker in workers)


@pytest.mark.thorough
@pytest.mark.parametrize("times", [2, pytest.param(6, marks=pytest.mark.long)])
def test_a_rolling_restart_of_the_backend_takes_no_worker_its_run(site: Site, times: int) -> None:
    backend = site.backend()
    workers = [site.worker() for _ in range(2)]
    steps = 8 * times
    runs = [site.client.create_run(tiny_run(steps, every=10, seed=seed)) for seed in range(2)]
    for number in range(1, times + 1):
        for run in runs:
            site.wait_for_step(run.id, 5 * number)
        backend.send_signal(signal.SIGTERM)
        backend.wait(timeout=30)
        backend = site.backend()
    for run in runs:
        ended = site.wait_for_end(run.id)
        assert (ended.status, ended.attempt, ended.failures) == ("finished", 1, 0)
        assert site.reward(run.id).step == list(range(steps))
    assert [worker.poll() for worker in workers] == [None, None]


@pytest.mark.thorough
def test_a_stop_of_a_worker_that_was_told_to_end_is_decided_once(site: Site) -> None:
    site.backend()
    worker = site.worker()
    run = site.client.create_run(tiny_run(400, every=100))
    site.wait_for_step(run.id, 3)
    site.client.command(run.id, "stop")
    worker.terminate()
    assert worker.wait(timeout=60) == 0
    ended = site.client.run(run.id)
    assert (ended.status, ended.attempt, ended.failures) == ("stopped", 1, 0)
    site.worker()
    assert site.run_to_end(tiny_run(2)).status == "finished"
    assert site.client.run(run.id) == ended


@pytest.mark.thorough
@pytest.mark.parametrize("steps", [12, pytest.param(40, marks=pytest.mark.long)])
def test_a_run_whose_every_third_answer_is_lost_equals_the_undisturbed_one(tmp_path: Path, steps: int) -> None:
    with Site(tmp_path / "home", max_failures=100) as site:
        site.backend()
        with Wire(site.url) as wire:
            answers = count()
            wire.loses = lambda _path: next(answers) % 3 == 2
            site.worker(backend=wire.url)
            run = site.run_to_end(tiny_run(steps, every=4))
            assert run.status == "finished"
            assert len(wire.lost) > steps / 6
            wire.loses = lambda _path: False
            undisturbed = site.run_to_end(tiny_run(steps, every=4))
        assert site.reward(run.id).value == site.reward(undisturbed.id).value
        assert site.client.steps(run.id) == site.client.steps(undisturbed.id)
        lost = {path.rsplit("/", 1)[-1] for path in wire.lost}
        print(f"{len(wire.lost)} answers lost in {steps} steps: {sorted(lost)}")  # noqa: T201
