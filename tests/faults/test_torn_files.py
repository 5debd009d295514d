"""Files of a killed run that are not what was written: the run goes on from what is whole, and its page says what was not."""

from pathlib import Path

import pytest
from processes import Site, tiny_run

pytestmark = [pytest.mark.slow, pytest.mark.thorough]
STEPS = 8


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def kill_with_two(site: Site) -> tuple[int, list[Path]]:
    """A run whose worker was killed when it had two checkpoints; the run, and where they lie."""
    site.backend()
    worker = site.held_worker(5)
    run = site.client.create_run(tiny_run(STEPS, every=2))
    site.wait_for_step(run.id, 5)
    worker.kill()
    worker.wait()
    return run.id, [site.home / "checkpoints" / saved.path for saved in site.client.checkpoints(run.id)]


LOST = "attempt 1 ended: its worker was not heard any more"


def warnings(site: Site, run_id: int) -> list[str]:
    return [line.message for line in site.client.logs(run_id).items if line.level == "warning"]


def finishes_whole(site: Site, run_id: int) -> None:
    site.worker()
    ended = site.wait_for_end(run_id)
    assert (ended.status, ended.attempt) == ("finished", 2)
    assert site.client.metrics(run_id, names=["reward"]).series["reward"].step == list(range(STEPS))


def test_a_damaged_newest_checkpoint_is_told_and_the_run_goes_on_from_the_one_before(site: Site) -> None:
    run_id, folders = kill_with_two(site)
    flip_a_bit(folders[-1] / "model" / "model.safetensors")
    finishes_whole(site, run_id)
    newest, before = (int(folder.name.split("-")[1]) for folder in (folders[-1], folders[-2]))
    assert warnings(site, run_id) == [
        LOST,
        f"checkpoint step {newest} is damaged (hash of model/model.safetensors differs); the run goes on from step {before}",
    ]


def test_a_run_whose_checkpoints_are_all_damaged_says_so_and_begins_again(site: Site) -> None:
    run_id, folders = kill_with_two(site)
    for folder in folders:
        (folder / "manifest.json").write_text("{}")
    finishes_whole(site, run_id)
    lost, said = warnings(site, run_id)
    assert lost == LOST
    assert said.count("is damaged (hash of manifest.json differs)") == len(folders)
    assert said.endswith("no checkpoint is whole, so the run begins at step 0")
