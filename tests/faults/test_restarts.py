"""Restarts and lost answers under way: runs end as if nothing had happened, and only a death without a word costs an attempt."""

import signal
from itertools import count
from pathlib import Path

import pytest
from lossy_wire import Wire
from processes import Site, tiny_run

pytestmark = pytest.mark.slow


def rewards(site: Site, run_id: int) -> list[float | None]:
    return site.client.metrics(run_id, names=["reward"]).series["reward"].value


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
        assert site.client.metrics(run.id, names=["reward"]).series["reward"].step == list(range(steps))
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
    after = site.client.create_run(tiny_run(2))
    assert site.wait_for_end(after.id).status == "finished"
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
            run = site.client.create_run(tiny_run(steps, every=4))
            ended = site.wait_for_end(run.id)
            assert ended.status == "finished"
            assert len(wire.lost) > steps / 6
            wire.loses = lambda _path: False
            undisturbed = site.client.create_run(tiny_run(steps, every=4))
            site.wait_for_end(undisturbed.id)
        assert rewards(site, run.id) == rewards(site, undisturbed.id)
        assert site.client.steps(run.id) == site.client.steps(undisturbed.id)
        lost = {path.rsplit("/", 1)[-1] for path in wire.lost}
        print(f"{len(wire.lost)} answers lost in {steps} steps: {sorted(lost)}")  # noqa: T201
