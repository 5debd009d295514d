"""What an earlier version began goes on here as it would have there, but for how numbers are rounded: how answers are read is a part of
the run."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from processes import BEGINNINGS, Site, death_of, tiny_run, watch
from safetensors.torch import load_file
from test_own_rewards_in_a_run import groups_of, scores_of
from test_resume import history

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
EARLIER = "572440f4"  # before answers were read as a person reads them
STEPS, AT, EVERY = 60, 4, 4
ROWS = "".join(
    f'{{"prompt": "Calculate {a} + {b} x {a}", "answer": "#### {a + b * a}"}}\n'
    for a in range(2, 9)
    for b in range(2, 9)
).encode()


class Earlier(Site):
    """A site whose processes run the code of the earlier version."""

    def __init__(self, home: Path, tree: Path) -> None:
        super().__init__(home)
        self._tree = tree

    def _start(
        self, like: str, *command: str, home: Path | None = None, files: int | None = None, **environment: str
    ) -> subprocess.Popen[bytes]:
        path, log = str(self._tree), self.home / f"{command[0]}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=path,
                env=self._environment | environment | {"PYTHONPATH": path},
                stdout=output,
                stderr=output,
            )
        self._forget.append(watch(lambda: death_of(process, log)))
        self._started.append(process)
        return process


def scored_by(match: str) -> dict[str, object]:
    return {"name": "correctness", "kind": "correctness", "match": match}


def rewards(site: Site, run_id: int) -> list[list[float | None]]:
    return [scores_of(group) for group in groups_of(site, run_id)]


def begin(site: Site) -> tuple[int, int]:
    """A run that is paused on its way, and a sample."""
    site.backend()
    site.worker()
    upload = site.client.upload("sums.jsonl", ROWS)
    task = {"kind": "dataset", "source": f"upload:{upload.id}"}
    config = tiny_run(STEPS, every=EVERY, task=task, rewards={"functions": [BEGINNINGS, scored_by("task")]})
    run = site.client.create_run(config | {"sampling": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 24}})
    site.wait_for_step(run.id, AT + 1)
    site.client.command(run.id, "pause")
    assert site.wait_for_end(run.id).status == "paused"
    sample = site.client.create_run(
        {
            "kind": "sample",
            "task": task,
            "task_prompts": 20,
            "group_size": 4,
            "decoding": {"max_new_tokens": 24},
            "rewards": {"functions": [scored_by("numeric")]},
        }
    )
    assert site.wait_for_end(sample.id).status == "finished"
    assert any(reward for scores in rewards(site, sample.id) for reward in scores)
    return run.id, sample.id


def same(one: object, other: object) -> bool:
    """Equal texts, tokens, counts and rewards; numbers that a product rounded up to that."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == (pytest.approx(other, rel=1e-3, abs=1e-5) if isinstance(other, float) else other)


def weights_of(site: Site, run_id: int) -> dict[str, torch.Tensor]:
    [folder] = site.home.glob(f"checkpoints/run-{run_id}/step-{STEPS}-attempt-*")
    return {name: one for file in (folder / "model").glob("*.safetensors") for name, one in load_file(file).items()}


def go_on(site: Site, run_id: int, sample_id: int) -> tuple[list[object], list[dict[str, torch.Tensor]]]:
    """The run resumed, a fork of it, and the sample scored by another match, by which it was never right; and the runs' weights."""
    site.backend()
    site.worker()
    site.client.command(run_id, "resume")
    fork = site.client.fork_run(run_id, AT)
    again = dict(site.client.run(sample_id).config) | {"rescores": sample_id}
    rescored = site.client.create_run(again | {"rewards": {"functions": [scored_by("task")]}})
    for one in (run_id, fork.id, rescored.id):
        ended = site.wait_for_end(one)
        assert (ended.status, ended.error) == ("finished", None)
    found = [history(site, one, STEPS)[:2] for one in (run_id, fork.id)]
    plain: list[object] = json.loads(json.dumps([*found, rewards(site, rescored.id)]))
    return plain, [weights_of(site, one) for one in (run_id, fork.id)]


def test_a_run_and_a_sample_of_an_earlier_version_go_on_as_they_would_have_there(tmp_path: Path) -> None:
    home, begun, tree = (tmp_path / name for name in ("home", "begun", "tree"))
    packed = tmp_path / "earlier.tar"
    command = ["git", "archive", f"--output={packed}", EARLIER]
    subprocess.run(command, cwd=ROOT, check=True)
    shutil.unpack_archive(packed, tree, filter="data")
    with Earlier(home, tree) as site:
        ids = begin(site)
    shutil.copytree(home, begun)
    with Earlier(home, tree) as site:
        there = go_on(site, *ids)
    shutil.rmtree(home)
    begun.rename(home)
    with Site(home) as site:
        here = go_on(site, *ids)
    assert same(here[0], there[0])
    for mine, its in zip(here[1], there[1], strict=True):
        assert mine.keys() == its.keys()
        assert all(torch.allclose(mine[name], its[name], rtol=1e-3, atol=1e-4) for name in mine)
