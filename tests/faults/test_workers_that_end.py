"""Workers that a launcher starts: they end by themselves, and the exit code says how."""

import pytest
from processes import Site, tiny_run, wait_until

from backend.contract.records import Run

pytestmark = pytest.mark.slow

SAMPLE = {"kind": "sample", "prompts": ["Calculate 2 + 2"], "group_size": 1}
ONCE = {"GROUPSCOPE_ONCE": "true"}


def statuses(site: Site, *runs: Run) -> list[str]:
    return [site.client.run(run.id).status for run in runs]


def test_a_worker_for_one_run_serves_samples_trains_one_and_leaves_the_next_and_one_that_fails_for_good_is_over(
    site: Site,
) -> None:
    site.backend()
    cannot_work = tiny_run(2, model={"source": "local:nowhere"})
    runs = [site.client.create_run(config) for config in (SAMPLE, tiny_run(2), cannot_work)]
    for last in ("queued", "failed"):
        assert site.worker(**ONCE).wait(timeout=240) == 0
        assert statuses(site, *runs) == ["finished", "finished", last]


def test_a_worker_that_is_asked_to_end_saves_and_gives_its_run_back_without_a_failure_and_the_next_finishes_it(
    site: Site,
) -> None:
    site.backend()
    first = site.held_worker(3, **ONCE)
    run = site.client.create_run(tiny_run(6, every=50))
    site.wait_for_held(3)
    first.terminate()
    site.go_on(3)
    assert first.wait(timeout=240) == 75  # its launcher learns that the run is not over
    back = site.client.run(run.id)
    assert (back.status, back.failures) == ("queued", 0)
    assert site.client.checkpoints(run.id)[-1].step >= 3
    assert site.worker(**ONCE).wait(timeout=240) == 0
    ended = site.client.run(run.id)
    assert (ended.status, ended.attempt, ended.failures) == ("finished", 2, 0)
    assert site.reward(run.id).step == list(range(6))


def test_a_worker_for_one_run_that_never_got_one_says_that_it_is_not_over(site: Site) -> None:
    site.backend()
    waiting = site.worker(**ONCE)
    wait_until(site.client.workers, "it asks for work")
    waiting.terminate()
    assert waiting.wait(timeout=240) == 75


@pytest.mark.thorough
def test_a_worker_ends_when_the_queue_is_empty_and_when_the_backend_is_away_or_refuses_it(site: Site) -> None:
    assert site.worker(GROUPSCOPE_IDLE_EXIT="0.5").wait(timeout=240) == 0
    assert site.worker(**ONCE, GROUPSCOPE_IDLE_EXIT="0.5").wait(timeout=240) == 75
    site.backend()
    refused = site.worker(**ONCE, GROUPSCOPE_IDLE_EXIT="0.5", GROUPSCOPE_TOKEN="another")
    assert refused.wait(timeout=240) == 1
    assert "the backend refused to give work: " in (site.home / "worker.main.log").read_text()
    assert site.worker(**ONCE, GROUPSCOPE_IDLE_EXIT="0.5").wait(timeout=240) == 0
    runs = [site.client.create_run(tiny_run(1)) for _ in range(2)]
    assert site.worker(GROUPSCOPE_IDLE_EXIT="0.5").wait(timeout=240) == 0
    assert statuses(site, *runs) == ["finished", "finished"]
