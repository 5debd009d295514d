"""A replay through all three: asked of the backend, done by a worker, read back; and refused, with the reason, where it could not be exact."""

import pytest
from processes import Site, kill, tiny_run

from backend.contract.client import ApiError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.thorough
def test_a_step_after_a_resume_is_explained_by_another_worker(site: Site) -> None:
    site.backend()
    first = site.held_worker(4)
    run = site.client.create_run(tiny_run(8, every=3))
    site.wait_for_step(run.id, 4)
    kill(first)
    site.worker()
    assert site.wait_for_end(run.id).status == "finished"
    replay = site.client.replay(run.id, 5)
    ended = site.wait_for_end(replay.id)
    assert (ended.status, ended.error) == ("finished", None)
    assert (ended.progress.step, ended.progress.total_steps) == (6, 6)
    assert site.client.metrics(replay.id, names=["loss"]).series["loss"].step == [3, 4, 5]
    found = site.client.replayed(replay.id)
    assert (found.run_id, found.step, found.from_step) == (run.id, 5, 3)
    assert len(found.groups) == 2
    recorded, repeated = (site.client.step_groups(one, 5) for one in (run.id, replay.id))
    for before, now in zip(recorded, repeated, strict=False):
        assert [(one.text, one.rewards, one.advantage) for one in before.completions] == [
            (one.text, one.rewards, one.advantage) for one in now.completions
        ]
        assert all(one.has_trace for one in now.completions)
        assert all(one.logprob_sum_after is not None for one in now.completions)
    assert {group.state for group in repeated[2:]} == {"probe"}
    asked = site.client
    assert not asked.health(replay.id).items
    assert asked.prompts(replay.id).items
    assert all(list(asked.export_table(replay.id, table)) for table in ("groups", "metrics"))
    assert list(asked.export(replay.id))
    assert run.id not in {one.id for one in site.client.runs(kind="replay").items}
    assert replay.id not in {one.id for one in site.client.runs(kind="training").items}


def refusal(site: Site, run_id: int, step: int) -> str:
    """Why the backend would not replay a step; the request itself is refused with the same words."""
    said = site.client.replay_outlook(run_id, step).refusal
    assert said is not None
    with pytest.raises(ApiError) as refused:
        site.client.replay(run_id, step)
    assert said in refused.value.message
    return said


def test_what_cannot_be_exact_is_refused_before_it_starts(site: Site) -> None:
    site.backend()
    site.worker()
    run = site.client.create_run(tiny_run(2, every=0))
    often = site.client.create_run(tiny_run(2, every=0, algorithm={"updates_per_batch": 9}))
    asked = site.client.create_run({"kind": "sample", "prompts": ["1 + 1"]})
    for one in (run, often, asked):
        assert site.wait_for_end(one.id).status == "finished"
    assert refusal(site, run.id, 2) == f"run {run.id} has no step 2 with groups"
    assert refusal(site, often.id, 1).startswith("it trains 9 times on each batch")
    assert refusal(site, asked.id, 0) == "a run of the kind sample trains nothing"
    config = site.client.replay_outlook(run.id, 1).config
    assert config is not None
    other = config.model_copy(update={"device": "CPU, 99 threads"})
    with pytest.raises(ApiError, match="would be done again from checkpoint 0 now"):
        site.client.create_run(other.model_dump(mode="json"))
    [waits] = [one.text for one in site.client.preflight(other.model_dump(mode="json")).messages if one.waits]
    assert waits.startswith(
        "steps are done again exactly, and no connected worker computes as the run did (CPU, 99 threads; "
    )


@pytest.mark.thorough
def test_a_step_of_a_fork_is_explained_from_the_checkpoint_of_the_run_from_which_it_was_forked(site: Site) -> None:
    site.backend()
    site.worker()
    parent = site.run_to_end(tiny_run(6, every=3))
    assert parent.status == "finished"
    fork = site.client.fork_run(parent.id, 3, {"algorithm.kl.beta": 0.5, "budget.checkpoint_every": 0})
    assert site.wait_for_end(fork.id).status == "finished"
    replay = site.client.replay(fork.id, 4)
    ended = site.wait_for_end(replay.id)
    assert (ended.status, ended.error) == ("finished", None)
    assert site.client.replayed(replay.id).from_step == 3
    assert refusal(site, fork.id, 1).startswith(f"the step is of run {parent.id}, from which this one was forked")
