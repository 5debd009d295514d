"""A run that goes on from another run's checkpoint: without a change it is that run, and with one it differs from its first update on."""

from typing import Any

import pytest
from processes import BEGINNINGS, Site, tiny_run, wait_until
from test_resume import PATIENCE, history

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEPS, AT = 12, 6
CONFIGS: dict[str, dict[str, Any]] = {
    "grpo": {"algorithm": {"kl": {"beta": 0.04}}},
    "ppo": {"algorithm": {"advantage": {"kind": "gae"}}},
    "dapo": {
        "algorithm": {"dead_groups": "resample", "surrogate": {"kind": "clip", "epsilon_high": 0.28}},
        "rewards": {"functions": [{**BEGINNINGS, "patterns": ["1", "x"]}]},
    },
    "adapters": {
        "model": {"lora": {"rank": 4, "alpha": 8}},
        "optimizer": {"schedule": "cosine", "warmup_steps": 3},
    },
}


@pytest.mark.parametrize("config", CONFIGS)
def test_a_fork_without_a_change_is_the_same_run(site: Site, config: str) -> None:
    """From a checkpoint, between two, and before the first."""
    site.backend()
    site.worker()
    parent = site.client.create_run(tiny_run(STEPS, every=3, **CONFIGS[config]))
    assert site.wait_for_end(parent.id, PATIENCE).status == "finished"
    whole = history(site, parent.id)
    forks = {at: site.client.fork_run(parent.id, at) for at in (AT, AT + 2, 2)}
    for at, fork in forks.items():
        assert (fork.parent_id, fork.forked_at, fork.progress.step) == (parent.id, at, at)
        ended = site.wait_for_end(fork.id, PATIENCE)
        assert (ended.status, ended.error) == ("finished", None)
        forked = history(site, fork.id)
        assert forked[0] == whole[0], at
        assert forked[1] == whole[1], at
        assert forked[2] == whole[2], f"the weights, from {at}"
        own = {group.step for group in site.client.groups(fork.id, limit=50).items if group.run_id == fork.id}
        assert own == set(range(at, STEPS))
        for name in ("num_tokens", "num_samples"):
            counts = [site.client.metrics(one, names=(name,)).series[name].value for one in (parent.id, fork.id)]
            assert counts[0] == counts[1], f"{name}, from {at}"
        saved = [one.step for one in site.client.checkpoints(fork.id) if one.run_id == fork.id]
        begun = [] if at == AT else [at]  # which has no checkpoint, so that the fork has one of its own
        assert saved == [*begun, *(step for step in range(3, STEPS + 1, 3) if step > at)]
        assert not list((site.home / "checkpoints" / f"run-{fork.id}").glob(".*")), (
            "nothing is left of how it came there"
        )


def test_a_fork_between_two_checkpoints_with_another_beta(site: Site) -> None:
    """A reference that follows the policy begins as the policy is there, and a curriculum as it was."""
    site.backend()
    site.worker()
    parent = site.client.create_run(tiny_run(STEPS, every=3, sampling={"curriculum": {}}))
    site.wait_for_end(parent.id, PATIENCE)
    changes = {"algorithm.kl.beta": 0.5, "algorithm.kl.reference": "synced", "algorithm.kl.sync_every": 4}
    fork = site.client.fork_run(parent.id, 8, changes)
    ended = site.wait_for_end(fork.id, PATIENCE)
    assert (ended.status, ended.error) == ("finished", None)
    kl = {one: site.client.metrics(one, names=("kl",)).series["kl"].value for one in (parent.id, fork.id)}
    assert kl[fork.id][:8] == kl[parent.id][:8]
    assert kl[fork.id][8] == 0.0, "at its first step policy and reference are the same"
    assert all(kl[fork.id][step] != 0.0 for step in range(9, STEPS))


def test_a_worker_that_dies_while_it_does_the_trunk_again_loses_nothing(site: Site) -> None:
    site.backend()
    worker = site.worker(module="tests.faults.worker_held", TEST_HELD_REPEATING="5")
    parent = site.client.create_run(tiny_run(STEPS, every=11))
    site.wait_for_end(parent.id, PATIENCE)
    fork = site.client.fork_run(parent.id, 10)
    wait_until(lambda: site.client.run(fork.id).progress.phase == "repeat", "the trunk is done again")
    worker.kill()
    worker.wait()
    assert site.client.run(fork.id).progress.step == 10
    site.worker()
    ended = site.wait_for_end(fork.id, PATIENCE)
    assert (ended.status, ended.error, ended.attempt) == ("finished", None, 2)
    assert history(site, fork.id)[2] == history(site, parent.id)[2]
    assert not list((site.home / "checkpoints" / f"run-{fork.id}").glob(".*"))


def test_a_fork_with_another_beta_differs_from_its_first_update_on(site: Site) -> None:
    site.backend()
    site.worker()
    parent = site.client.create_run(tiny_run(STEPS, every=3))
    site.wait_for_end(parent.id, PATIENCE)
    fork = site.client.fork_run(parent.id, AT, {"algorithm.kl.beta": 1.0})
    assert site.wait_for_end(fork.id, PATIENCE).status == "finished"

    def at(run_id: int, step: int) -> list[list[str]]:
        groups = [site.client.group(one.id) for one in site.client.groups(run_id, step=step, sort="index").items]
        return [[one.text for one in group.completions] for group in groups]

    losses = {one: site.client.metrics(one, names=("loss",)).series["loss"].value for one in (parent.id, fork.id)}
    assert losses[fork.id][:AT] == losses[parent.id][:AT]
    assert losses[fork.id][AT] != losses[parent.id][AT]
    assert at(fork.id, AT) == at(parent.id, AT)  # they were drawn before the update

    # at step 0 policy and reference are the same: the penalty and its gradient are 0 until the first update
    from_the_start = site.client.fork_run(parent.id, 0, {"algorithm.kl.beta": 1.0})
    assert site.wait_for_end(from_the_start.id, PATIENCE).status == "finished"
    loss = site.client.metrics(from_the_start.id, names=("loss",)).series["loss"].value
    assert loss[0] == losses[parent.id][0]
    assert at(from_the_start.id, 1) == at(parent.id, 1)
    assert loss[1] != losses[parent.id][1]
