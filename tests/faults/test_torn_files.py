"""Files of a killed run that are not what was written, or were being removed: the run goes on from what is whole, and says so."""

from pathlib import Path

import pytest
from processes import Site, kill, tiny_run
from worker_killed_removing import MOMENTS

from worker.checkpoint import damage

pytestmark = [pytest.mark.slow, pytest.mark.thorough]
STEPS = 8


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_damaged_newest_checkpoint_is_told_and_the_run_goes_on_from_the_one_before(site: Site) -> None:
    site.backend()
    worker = site.held_worker(5)
    run = site.client.create_run(tiny_run(STEPS, every=2))
    site.wait_for_step(run.id, 5)
    kill(worker)
    newest, before = sorted(site.client.checkpoints(run.id), key=lambda one: one.step, reverse=True)[:2]
    flip_a_bit(site.home / "checkpoints" / newest.path / "model" / "model.safetensors")
    site.worker()
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt) == ("finished", 2)
    assert site.reward(run.id).step == list(range(STEPS))
    assert [line.message for line in site.client.logs(run.id).items if line.level == "warning"] == [
        "attempt 1 ended: its worker was not heard any more",
        f"checkpoint step {newest.step} is damaged (hash of model/model.safetensors differs); "
        f"the run goes on from step {before.step}",
    ]


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
    assert site.reward(run.id).step == list(range(12))
    assert [one.step for one in site.client.checkpoints(run.id)] == [10, 12]
    assert folders(site, run.id) == offered(site, run.id), "what the kill left is gone"
