"""A run whose worker is killed and that another one resumes is the run that nobody disturbed: tokens, rewards, losses and weights."""

import hashlib
import json
import signal

import pytest
from processes import Site, tiny_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PATIENCE = 240.0  # a worker loads its libraries twice

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
    ended = site.wait_for_end(run.id, PATIENCE)
    assert (ended.status, ended.attempt, ended.failures) == ("finished", 2, 1)
    undisturbed = site.client.create_run(tiny_run(STEPS, every=3, model=model))
    assert site.wait_for_end(undisturbed.id, PATIENCE).status == "finished"
    killed, whole = history(site, run.id), history(site, undisturbed.id)
    assert killed[0] == whole[0]
    assert killed[1] == whole[1]
    assert killed[2] == whole[2], "the weights"
