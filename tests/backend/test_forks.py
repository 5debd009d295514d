"""A fork shares the steps before it with the run that it comes from: seen in every view, kept as long as they are needed."""

import math
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from acting import GRPO, Actor, began, group
from processes import wait_until
from serving import Backend, Backends

from backend.contract.base import Json
from backend.contract.client import ApiError
from backend.contract.protocol import CheckpointRef
from backend.contract.records import Run
from backend.lifecycle.creation import overridden

STEPS, AT = 90, 40


def config(**changes: Json) -> dict[str, Any]:
    """The default configuration with another budget."""
    budget: Any = GRPO["budget"]
    return {**GRPO, "budget": {**budget, "steps": STEPS, **changes}}


def trained(actor: Actor, first: int, last: int, sign: float = 1.0) -> None:
    """Steps with a reward that says whose they are, and a missing value now and then."""
    for step in range(first, last):
        reward = None if step % 7 == 3 else sign * step
        actor.report(step, metrics={"reward": reward, "loss": 1.0}, groups=[group(prompt_id=f"p{step % 5}")])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """A finished run with two checkpoints: the database in which it is, and the run."""
    folder = tmp_path_factory.mktemp("parent")
    with Backends(folder / "home") as backends:
        backend = backends.start()
        run = backend.client.create_run(config())
        actor = Actor(backend.client).begin()
        trained(actor, 0, AT)
        actor.save(AT)
        trained(actor, AT, STEPS)
        actor.save(STEPS)
        actor.finish()
        with (
            closing(sqlite3.connect(folder / "home" / "groupscope.db")) as database,
            closing(sqlite3.connect(folder / "recorded.db")) as copy,
        ):
            database.backup(copy)
    return folder / "recorded.db", run


@pytest.fixture
def parent(recorded: tuple[Path, Run]) -> Run:
    return recorded[1]


@pytest.fixture
def backend(recorded: tuple[Path, Run], tmp_path: Path, start_backend: Callable[..., Backend]) -> Backend:
    """One of the test's own, in which the parent is."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "groupscope.db").write_bytes(recorded[0].read_bytes())
    return start_backend()


@pytest.fixture(scope="module")
def read_only(recorded: tuple[Path, Run], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Backend, Run]]:
    """One with the parent and a fork of it, for tests that change nothing; the fork."""
    home = tmp_path_factory.mktemp("fork")
    (home / "groupscope.db").write_bytes(recorded[0].read_bytes())
    with Backends(home) as backends:
        backend = backends.start()
        yield backend, forked(backend, recorded[1])[0]


def place(checkpoint: CheckpointRef | None) -> tuple[int, int] | None:
    """Its run and its step."""
    return (checkpoint.run_id, checkpoint.step) if checkpoint else None


def forked(backend: Backend, of: Run, at: int = AT, until: int = 70) -> tuple[Run, Actor]:
    fork = backend.client.fork_run(of.id, at, {"algorithm.kl.beta": 0.5})
    actor = Actor(backend.client)
    claim = actor.claimed()
    assert (claim.run_id, claim.forked_at, place(claim.resume)) == (fork.id, at, (of.id, at))
    actor.start(at)
    trained(actor, at, until, -1.0)
    return fork, actor


def test_a_fork_has_the_steps_of_its_trunk_and_then_its_own(backend: Backend, parent: Run) -> None:
    fork, actor = forked(backend, parent)
    whole = {step: None if step % 7 == 3 else float(step if step < AT else -step) for step in range(70)}
    found = backend.client.metrics(fork.id, names=("reward",)).series["reward"]
    assert dict(zip(found.step, found.value, strict=True)) == whole
    assert [one.step for one in backend.client.steps(fork.id)] == list(range(70))
    runs = {step: backend.client.groups(fork.id, step=step).items[0].run_id for step in (0, AT - 1, AT, 69)}
    assert runs == {0: parent.id, AT - 1: parent.id, AT: fork.id, 69: fork.id}
    assert backend.client.run(fork.id).summary["reward"] == -69.0
    assert sum(one.draws for one in backend.client.prompts(fork.id).items) == 70
    assert len(backend.client.groups(fork.id, prompt_id="p0", limit=50).items) == 14
    assert len(backend.client.groups_of_prompt(prompt_id="p0", runs=(fork.id,)).items) == 14
    assert len(backend.client.completions(fork.id, search="text 1", limit=200).items) == 70
    assert backend.client.step_scores(fork.id, AT - 1).groups[0].prompt_id == f"p{(AT - 1) % 5}"
    actor.save(60)
    actor.finish("released")
    claim = Actor(backend.client, "two").claimed()
    assert [place(one) for one in (claim.resume, *claim.earlier)] == [(fork.id, 60), (parent.id, AT)]


@pytest.mark.parametrize("window", [(0, 69), (0, 39), (38, 41), (40, 69), (13, 66)])
@pytest.mark.parametrize("points", [4, 10, 40])
def test_a_thinned_series_of_a_fork_is_that_of_its_values(
    read_only: tuple[Backend, Run], window: tuple[int, int], points: int
) -> None:
    (backend, fork), (low, high) = read_only, window
    asked = {"names": ("reward",), "from_step": low, "to_step": high}
    plain = backend.client.metrics(fork.id, **asked).series["reward"]
    values = dict(zip(plain.step, plain.value, strict=True))
    assert list(values) == list(range(low, high + 1))
    thinned = backend.client.metrics(fork.id, max_points=points, **asked).series["reward"]
    assert len(thinned.step) <= max(points, 4)
    if thinned.stretches is None:
        assert thinned == plain
        return
    for start, end, mean, least, most in zip(
        thinned.stretches.start, thinned.step, thinned.value, thinned.stretches.low, thinned.stretches.high, strict=True
    ):
        of_stretch = [value for step in range(start, end + 1) if (value := values[step]) is not None]
        if not of_stretch:
            assert (least, mean, most) == (None, None, None)
            continue
        assert mean is not None
        assert (least, most) == (min(of_stretch), max(of_stretch))
        assert math.isclose(mean, sum(of_stretch) / len(of_stretch), abs_tol=1e-9)


def test_a_fork_of_a_fork_has_both_trunks_and_begins_from_a_checkpoint_of_the_one_or_the_other(
    backend: Backend, parent: Run
) -> None:
    fork, actor = forked(backend, parent)
    actor.save(60)
    actor.finish()
    backend.client.fork_run(fork.id, 55)  # after the checkpoint that the fork itself began from
    claim = actor.claimed()
    assert (claim.forked_at, place(claim.resume)) == (55, (parent.id, AT))
    assert (claim.repeats, claim.trunk_config) == (fork.config, parent.config)
    backend.client.fork_run(fork.id, 20)  # among the steps that are the parent's
    claim = actor.claimed()
    assert (claim.forked_at, claim.resume, claim.repeats) == (20, None, parent.config)
    second, _ = forked(backend, fork, 60, 65)
    series = backend.client.metrics(second.id, names=("reward",)).series["reward"]
    assert series.step == list(range(65))
    owners = [backend.client.groups(second.id, step=step).items[0].run_id for step in (10, 50, 62)]
    assert owners == [parent.id, fork.id, second.id]
    third = backend.client.fork_run(fork.id, AT)  # where that one began itself
    assert backend.client.run(third.id).forked_at == AT


@pytest.mark.parametrize(
    ("change", "at", "why"),
    [
        ({"model.source": "builtin:other"}, AT, "has the weights of that model"),
        ({"model.lora": {"rank": 8, "alpha": 16}}, AT, "adapters have the shapes"),
        ({"algorithm.advantage": {"kind": "gae"}}, AT, "has no value head"),
        ({"budget.steps": AT}, AT, "let it have more"),
        ({}, STEPS + 1, f"no checkpoint after {STEPS + 1} steps or later.*it has these: {AT}, {STEPS}"),
        ({"compute.processes": 2}, AT + 1, "2 processes are asked for"),
    ],
)
def test_what_a_checkpoint_cannot_become_and_a_step_that_cannot_be_reached_again_are_refused_with_the_reason(
    read_only: tuple[Backend, Run], parent: Run, change: dict[str, Json], at: int, why: str
) -> None:
    client, asked = read_only[0].client, {"budget.steps": 2 * STEPS, **change}
    with pytest.raises(ApiError, match=why):
        client.fork_run(parent.id, at, asked)
    changed = overridden(parent.config, asked).model_dump(mode="json")
    errors = client.preflight(changed, parent_id=parent.id, fork_at=at)
    assert not errors.ok
    assert any(re.search(why, one.text) for one in errors.messages if one.level == "error")


def test_a_fork_between_two_checkpoints_begins_from_the_one_before_on_a_worker_that_computes_as_its_run_did(
    backend: Backend, parent: Run
) -> None:
    fork = backend.client.fork_run(parent.id, 50, {"optimizer.learning_rate": 1e-3})
    assert (fork.forked_at, fork.progress.step) == (50, 50)
    assert [one.step for one in backend.client.steps(fork.id)] == list(range(50))
    actor, other = Actor(backend.client), Actor(backend.client, "other", versions={"torch": "2.11.0"})
    assert other.claim() is None
    claim = actor.claimed()
    assert (claim.forked_at, place(claim.resume)) == (50, (parent.id, AT))
    assert claim.repeats == claim.trunk_config == parent.config
    actor.start(50)
    actor.save(50)
    actor.finish("released")
    claim = other.claimed()  # from its own checkpoint any worker can go on
    assert (claim.run_id, place(claim.resume)) == (fork.id, (fork.id, 50))
    other.start(50)
    trained(other, 50, 60, -1.0)
    other.save(60)
    other.finish()
    backend.client.fork_run(fork.id, 50)  # none of whose steps are the fork's: it comes there in the same way
    assert other.claim() is None
    claim = actor.claimed()
    assert (claim.forked_at, place(claim.resume), claim.repeats) == (50, (parent.id, AT), parent.config)


def test_a_fork_before_the_first_checkpoint_begins_where_its_run_began_and_never_before_its_trunk_ends(
    backend: Backend, parent: Run
) -> None:
    backend.client.fork_run(parent.id, 5)
    actor = Actor(backend.client)
    claim = actor.claimed()
    assert (claim.forked_at, claim.resume, claim.repeats) == (5, None, parent.config)
    with pytest.raises(ApiError, match="was forked at step 5 and begins no earlier"):
        actor.start(0)


def test_a_fork_with_checkpoints_of_its_own_is_never_brought_to_its_beginning_again(
    backend: Backend, parent: Run
) -> None:
    backend.client.fork_run(parent.id, 50, {"budget.keep": {"last": 1}})
    actor = Actor(backend.client).begin(50)
    actor.save(50)
    for step in (60, 70):
        trained(actor, step - 10, step)
        actor.save(step)
    actor.finish("released")
    claim = Actor(backend.client, "other").claimed()
    assert claim.repeats is None
    assert [one.step for one in (claim.resume, *claim.earlier) if one is not None] == [70, 50], "where it began stays"


def test_steps_that_a_gpu_computed_are_not_done_again(backend: Backend) -> None:
    actor = began(backend.client, config(), device="NVIDIA H100")
    trained(actor, 0, AT)
    actor.save(AT)
    with pytest.raises(ApiError, match=r"NVIDIA H100 computed it, and only a CPU.*it has these: 40"):
        backend.client.fork_run(actor.run_id, AT - 1)
    assert backend.client.fork_run(actor.run_id, AT).forked_at == AT


def test_preflight_of_a_fork_says_what_cannot_change_and_for_which_worker_it_waits(
    backend: Backend, parent: Run
) -> None:
    changed = overridden(parent.config, {"model.lora": {"rank": 8, "alpha": 16}}).model_dump(mode="json")
    found = backend.client.preflight(changed, parent_id=parent.id, fork_at=AT)
    assert [one.field for one in found.messages if one.level == "error"] == ["model.lora"]
    right = backend.client.preflight(parent.config, parent_id=parent.id, fork_at=AT)
    assert right.ok
    assert right.completions_per_step is not None
    assert right.total_completions == (STEPS - AT) * right.completions_per_step, "its own, without the trunk's"
    backend.clock.now += 3600  # the parent's worker is gone
    Actor(backend.client, "other", versions={"torch": "2.11.0"}).claim()
    waits = backend.client.preflight(parent.config, parent_id=parent.id, fork_at=AT + 1)
    assert any("computes as the run did (CPU; torch 2.13.0)" in one.text for one in waits.messages)


@pytest.mark.parametrize(
    ("before", "now", "at", "says"),
    [
        ({}, {"learning_rate": 2e-4}, 40, "jumps from 5e-5, the parent's at this step, to 0.0002 (4 times)"),
        ({}, {"learning_rate": 1.5e-4}, 40, ""),
        ({"schedule": "linear"}, {"schedule": "constant"}, 200, "to 5e-5 (90 times)"),  # beyond the parent's end
        ({"warmup_steps": 40}, {}, 9, "from 1.25e-5"),
        ({"warmup_steps": 40}, {}, 0, ""),
    ],
)
def test_a_fork_whose_learning_rate_jumps_is_warned_and_can_go_on_with_the_parents(
    read_only: tuple[Backend, Run], before: dict[str, Json], now: dict[str, Json], at: int, says: str
) -> None:
    client = read_only[0].client
    parent = client.create_run({**config(), "optimizer": {**config()["optimizer"], **before}})
    changed = {**config(steps=300), "optimizer": {**config()["optimizer"], **now}}
    found = [one for one in client.preflight(changed, parent_id=parent.id, fork_at=at).messages if "jumps" in one.text]
    assert [says in one.text for one in found] == [True] * bool(says)
    for one in found:
        fixed = overridden(changed, one.fix or {}).model_dump(mode="json")
        assert "jumps" not in str(client.preflight(fixed, parent_id=parent.id, fork_at=at).messages)


def test_a_parent_is_deleted_only_with_a_word_for_its_forks_and_its_trunk_goes_with_the_last_of_them(
    backend: Backend, parent: Run
) -> None:
    fork, actor = forked(backend, parent)
    actor.finish()
    with pytest.raises(ApiError, match=f"Run {fork.id} was forked from run {parent.id}"):
        backend.client.delete_run(parent.id)
    backend.client.delete_run(parent.id, keep_trunk=True)
    with pytest.raises(ApiError, match="no run"):
        backend.client.run(parent.id)
    other = backend.client.create_run(config())
    backend.client.delete_run(other.id)
    wait_until(lambda: not backend.client.deletions(), "what comes after the parent is removed")
    [summary] = backend.client.groups(fork.id, step=3).items
    assert backend.client.group(summary.id).run_id == parent.id
    assert len(backend.client.metrics(fork.id, names=("loss",)).series["loss"].step) == 70
    second = backend.client.fork_run(fork.id, AT)  # its checkpoint is there, too
    backend.client.delete_run(fork.id, keep_trunk=True)
    actor.begin(AT)
    with pytest.raises(ApiError, match="running"):
        backend.client.delete_run(second.id)
    actor.finish()
    backend.client.delete_run(second.id)
    wait_until(lambda: not backend.client.deletions(), "all three are removed")
    with backend.services.database.read() as tx:
        assert tx.exec_driver_sql("SELECT count(*) FROM prompt_group").scalar_one() == 0
        assert tx.exec_driver_sql("SELECT count(*) FROM run").scalar_one() == 0


@pytest.mark.parametrize(("keeps", "after", "at"), [(1, 10, 10), (2, 20, 15)])
def test_a_checkpoint_that_a_fork_began_from_or_from_which_it_repeats_steps_is_not_removed(
    backend: Backend, keeps: int, after: int, at: int
) -> None:
    actor = began(backend.client, config(keep={"last": keeps}))
    for step in (10, 20, 30, 40):
        trained(actor, step - 10, step)
        actor.save(step)
        if step == after:
            backend.client.fork_run(actor.run_id, at)
    assert [one.step for one in backend.client.checkpoints(actor.run_id)] == [10, *(30, 40)[-keeps:]]
