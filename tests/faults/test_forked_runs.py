"""A run that goes on from another run's checkpoint: without a change it is that run, and with one it differs from its first update on."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from processes import BEGINNINGS, Site, kill, tiny_run, wait_until
from test_resume import history

from backend.contract.records import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEPS, AT, EVERY = 8, 4, 2
CONFIGS: dict[str, dict[str, Any]] = {
    "curriculum": {"sampling": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 6, "curriculum": {}}},
    "grpo": {"algorithm": {"kl": {"beta": 0.04}}},
    "ppo": {"algorithm": {"advantage": {"kind": "gae"}}},
    "dapo": {
        "algorithm": {"dead_groups": "resample", "surrogate": {"kind": "clip", "epsilon_high": 0.28}},
        "rewards": {"functions": [{**BEGINNINGS, "patterns": ["1", "x"]}]},
    },
    "adapters": {"model": {"lora": {"rank": 4, "alpha": 8}}, "optimizer": {"schedule": "cosine", "warmup_steps": 3}},
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One worker, which trains all parents and forks."""
    with Site(tmp_path_factory.mktemp("forks") / "home") as one:
        one.backend()
        one.worker()
        yield one


@pytest.fixture(scope="module")
def parent_of(shared: Site) -> Callable[[str], Run]:
    """The run of a configuration from which others are forked: trained once."""

    @cache
    def trained(config: str) -> Run:
        ended = shared.run_to_end(tiny_run(STEPS, every=EVERY, **CONFIGS[config]))
        assert (ended.status, ended.error) == ("finished", None)
        return ended

    return trained


@pytest.mark.thorough
@pytest.mark.parametrize("config", ["grpo", "ppo", "dapo", "adapters"])
def test_a_fork_without_a_change_is_the_same_run(shared: Site, parent_of: Callable[[str], Run], config: str) -> None:
    """From a checkpoint, between two, and before the first."""
    site, parent = shared, parent_of(config)
    whole = history(site, parent.id, STEPS)
    forks = {at: site.client.fork_run(parent.id, at) for at in (AT, AT + 1, 1)}
    for at, fork in forks.items():
        assert (fork.parent_id, fork.forked_at, fork.progress.step) == (parent.id, at, at)
        ended = site.wait_for_end(fork.id)
        assert (ended.status, ended.error) == ("finished", None)
        forked = history(site, fork.id, STEPS)
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
        assert saved == [*begun, *(step for step in range(EVERY, STEPS + 1, EVERY) if step > at)]
        assert not list((site.home / "checkpoints" / f"run-{fork.id}").glob(".*")), (
            "nothing is left of how it came there"
        )


@pytest.mark.thorough
def test_a_fork_between_two_checkpoints_with_another_beta(shared: Site, parent_of: Callable[[str], Run]) -> None:
    """A reference that follows the policy begins as the policy is there, and a curriculum as it was."""
    site, parent = shared, parent_of("curriculum")
    changes = {"algorithm.kl.beta": 0.5, "algorithm.kl.reference": "synced", "algorithm.kl.sync_every": 4}
    fork = site.client.fork_run(parent.id, AT + 1, changes)
    ended = site.wait_for_end(fork.id)
    assert (ended.status, ended.error) == ("finished", None)
    kl = {one: site.client.metrics(one, names=("kl",)).series["kl"].value for one in (parent.id, fork.id)}
    assert kl[fork.id][: AT + 1] == kl[parent.id][: AT + 1]
    assert kl[fork.id][AT + 1] == 0.0, "at its first step policy and reference are the same"
    assert all(kl[fork.id][step] != 0.0 for step in range(AT + 2, STEPS))


@pytest.mark.thorough
def test_a_worker_that_dies_while_it_does_the_trunk_again_loses_nothing(site: Site) -> None:
    site.backend()
    worker = site.worker(module="tests.faults.worker_held", TEST_HELD_REPEATING="3")
    parent = site.run_to_end(tiny_run(STEPS, every=STEPS - 1))
    fork = site.client.fork_run(parent.id, 6)
    wait_until(lambda: site.client.run(fork.id).progress.phase == "repeat", "the trunk is done again")
    kill(worker)
    assert site.client.run(fork.id).progress.step == 6
    site.worker()
    ended = site.wait_for_end(fork.id)
    assert (ended.status, ended.error, ended.attempt) == ("finished", None, 2)
    assert history(site, fork.id, STEPS)[2] == history(site, parent.id, STEPS)[2]
    assert not list((site.home / "checkpoints" / f"run-{fork.id}").glob(".*"))


def test_a_fork_with_another_beta_differs_from_its_first_update(shared: Site, parent_of: Callable[[str], Run]) -> None:
    site, parent = shared, parent_of("grpo")
    fork = site.client.fork_run(parent.id, AT, {"algorithm.kl.beta": 1.0})
    assert site.wait_for_end(fork.id).status == "finished"

    def at(run_id: int, step: int) -> list[list[str]]:
        groups = [site.client.group(one.id) for one in site.client.groups(run_id, step=step, sort="index").items]
        return [[one.text for one in group.completions] for group in groups]

    losses = {one: site.client.metrics(one, names=("loss",)).series["loss"].value for one in (parent.id, fork.id)}
    assert losses[fork.id][:AT] == losses[parent.id][:AT]
    assert losses[fork.id][AT] != losses[parent.id][AT]
    assert at(fork.id, AT) == at(parent.id, AT)  # they were drawn before the update

    # at step 0 policy and reference are the same: the penalty and its gradient are 0 until the first update
    from_the_start = site.client.fork_run(parent.id, 0, {"algorithm.kl.beta": 1.0})
    assert site.wait_for_end(from_the_start.id).status == "finished"
    loss = site.client.metrics(from_the_start.id, names=("loss",)).series["loss"].value
    assert loss[0] == losses[parent.id][0]
    assert at(from_the_start.id, 1) == at(parent.id, 1)
    assert loss[1] != losses[parent.id][1]
