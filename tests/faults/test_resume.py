"""A run whose worker is killed and that another one resumes is the run that nobody disturbed: tokens, rewards, losses and weights."""

import hashlib
import json
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from hub import FIRST, NAME, SECOND, Hub
from processes import Site, kill, tiny_run, wait_until
from zygote import HUB

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEPS = 8
OWN = {"id": True, "run_id": True, "attempt": True, "completions": {"__all__": {"id"}}}


def history(site: Site, run_id: int, steps: int = STEPS) -> tuple[object, dict[str, object], str]:
    """The groups with all their completions, the metrics that no clock is in, and the hash of the last checkpoint's weights."""
    groups = [
        json.loads(site.client.group(summary.id).model_dump_json(exclude=OWN))
        for step in range(steps)
        for summary in site.client.groups(run_id, step=step, limit=50).items
    ]
    timed = ("time/", "step_time", "tokens_per_second", "peak_memory")
    series = site.client.metrics(run_id).series
    metrics = {name: one.model_dump() for name, one in series.items() if not name.startswith(timed)}
    [folder] = site.home.glob(f"checkpoints/run-{run_id}/step-{steps}-attempt-*")
    weights = hashlib.sha256()
    for file in sorted((folder / "model").glob("*.safetensors")):
        weights.update(file.read_bytes())
    return groups, metrics, weights.hexdigest()


@pytest.mark.parametrize(
    ("model", "before"),
    [
        pytest.param({}, [], id="all weights"),
        # it cannot even begin to save
        pytest.param(
            {"lora": {"rank": 4, "alpha": 8}},
            [signal.SIGSTOP, signal.SIGTERM],
            id="adapters, told to end before",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_run_that_goes_on_after_a_sigkill_equals_one_that_nobody_disturbed(
    site: Site, model: dict[str, object], before: list[signal.Signals]
) -> None:
    site.backend()
    first = site.held_worker(5)
    run = site.client.create_run(tiny_run(STEPS, every=3, model=model))
    site.wait_for_step(run.id, 5)
    for number in (*before, signal.SIGKILL):
        first.send_signal(number)
    assert first.wait(timeout=30) == -signal.SIGKILL
    assert site.client.run(run.id).status == "running", "nobody could say anything; its lease is not over"
    site.worker()
    ended = site.wait_for_end(run.id)
    assert (ended.status, ended.attempt, ended.failures) == ("finished", 2, 1)
    undisturbed = site.run_to_end(tiny_run(STEPS, every=3, model=model))
    assert undisturbed.status == "finished"
    killed, whole = history(site, run.id), history(site, undisturbed.id)
    assert killed[0] == whole[0]
    assert killed[1] == whole[1]
    assert killed[2] == whole[2], "the weights"


def texts(site: Site, run_id: int, attempt: int) -> list[str]:
    """What an attempt sampled and trained on in its first two steps, also where a later one has taken its place."""
    query = "SELECT text FROM completion WHERE run_id = ? AND attempt = ? AND step < 2 AND state <> 'probe' ORDER BY step, id"
    with closing(sqlite3.connect(site.home / "groupscope.db")) as database:
        return [text for (text,) in database.execute(query, (run_id, attempt))]


@pytest.fixture
def hub() -> Iterator[Hub]:
    yield Hub(HUB)
    shutil.rmtree(HUB)


@pytest.mark.thorough
def test_a_second_attempt_samples_what_the_first_did_although_the_models_name_on_the_hub_has_moved(
    site: Site, hub: Hub
) -> None:
    site.backend()
    worker = site.worker()
    run = site.client.create_run(tiny_run(400, every=0, model={"source": NAME}))
    site.wait_for_step(run.id, 2)
    assert site.client.run(run.id).model_commit == FIRST
    hub.move_main(SECOND)
    kill(worker)
    site.worker()
    wait_until(lambda: len(texts(site, run.id, 2)) >= 16, "another worker samples the first steps again")
    assert site.client.run(run.id).model_commit == FIRST
    site.client.command(run.id, "stop")
    assert site.wait_for_end(run.id).status == "stopped"
    first, second = texts(site, run.id, 1), texts(site, run.id, 2)
    assert len(first) >= 16
    assert first == second
