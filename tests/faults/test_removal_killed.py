"""A worker killed at each moment of a checkpoint's removal: the run goes on, and nothing that is offered is missing."""

import pytest
from processes import Site, tiny_run
from worker_killed_removing import MOMENTS

from worker.checkpoint import damage

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


def folders(site: Site, run_id: int) -> list[str]:
    return sorted(path.name for path in (site.home / "checkpoints" / f"run-{run_id}").iterdir())


def offered(site: Site, run_id: int) -> list[str]:
    return sorted(one.path.split("/")[1] for one in site.client.checkpoints(run_id))


@pytest.mark.parametrize(
    "moment", [one if one == "half removed" else pytest.param(one, marks=pytest.mark.long) for one in MOMENTS]
)
def test_a_kill_while_a_checkpoint_is_removed_leaves_whole_what_is_offered(site: Site, moment: str) -> None:
    site.backend()
    killed = site.worker(module="tests.faults.worker_killed_removing", KILLED_WHEN=moment, TEST_HELD_AT="9")
    config = tiny_run(12, every=2)
    budget = {**config["budget"], "keep": {"last": 2, "best": False}}  # type: ignore[dict-item]
    run = site.client.create_run({**config, "budget": budget})
    assert killed.wait(240) == -9
    for path in offered(site, run.id):
        assert damage(site.home / "checkpoints" / f"run-{run.id}" / path) is None
    site.worker()
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt) == ("finished", 2)
    assert site.client.metrics(run.id, names=["reward"]).series["reward"].step == list(range(12))
    assert [one.step for one in site.client.checkpoints(run.id)] == [10, 12]
    assert folders(site, run.id) == offered(site, run.id), "what the kill left is gone"
