"""A gradient that is not finite, in a real run: it is not applied, no checkpoint comes of it, and a run that stays so ends."""

from pathlib import Path

import pytest
import torch
from processes import Site, assert_failed, kill, tiny_run
from safetensors.torch import load_file
from worker_not_finite import POISONED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.thorough]

TENSOR = "model.layers.0.self_attn.q_proj.weight"


def weights(site: Site, run_id: int, step: int) -> dict[str, torch.Tensor]:
    """Of the checkpoint after `step` steps."""
    [folder] = site.home.glob(f"checkpoints/run-{run_id}/step-{step}-attempt-1")
    return load_file(folder / "model" / "model.safetensors")


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_an_infinite_gradient_is_not_applied_and_three_on_end_end_the_run(site: Site) -> None:
    site.backend()
    poisoned = site.worker(module="tests.faults.worker_not_finite")
    run = site.run_to_end(tiny_run(14, every=1, algorithm={"dead_groups": "resample"}))
    assert_failed(run, "diverged", "3 steps in a row, the last being step 10", TENSOR)
    assert run.attempt == 1, "it is not tried again: it would diverge again"
    said = [line.message for line in site.client.logs(run.id).items if "not applied" in line.message]
    skipped = sorted(POISONED)[:3]  # the last one ends the run
    assert said == [
        f"step {update - 1}: the gradient of {TENSOR} was not finite, so the update was not applied"
        for update in skipped
    ]
    assert site.client.metrics(run.id, names=["grad_norm"]).series["grad_norm"].value[4] is None
    assert equal(weights(site, run.id, 5), weights(site, run.id, 4)), "nothing is saved of what was not applied"
    assert not equal(weights(site, run.id, 6), weights(site, run.id, 5)), "and the run went on"
    last = max(int(Path(one.path).name.split("-")[1]) for one in site.client.checkpoints(run.id))
    assert equal(weights(site, run.id, last), weights(site, run.id, 8))
    assert all(tensor.isfinite().all() for tensor in weights(site, run.id, last).values())
    kill(poisoned)
    site.client.command(run.id, "retry")
    site.worker()
    assert site.wait_for_end(run.id).status == "finished", "the last checkpoint loads"
