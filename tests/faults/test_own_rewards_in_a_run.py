"""Rewards of one's own in real runs: offered while a worker is busy, kept with the run, and bound to the text that began it."""

from pathlib import Path

import pytest
from processes import Site, error_of, tiny_run, wait_until

from backend.contract.groups import Group
from backend.contract.records import Worker

pytestmark = pytest.mark.slow

GOOD = "def reward(completion, *, longest=2):\n    return min(len(completion), longest)\n"
OTHER = "def reward(completion, *, longest=2):\n    return -min(len(completion), longest)\n"
REWARDS = {"functions": [{"name": "mine", "kind": "python", "function": "own.py:reward", "arguments": {"longest": 1}}]}


@pytest.fixture
def own(site: Site) -> Path:
    """The file of a person's rewards."""
    (site.home / "rewards").mkdir()
    return site.home / "rewards" / "own.py"


def offering(site: Site) -> Worker:
    wait_until(lambda: any(one.alive for one in site.client.workers()), "the worker is there")
    [worker] = [one for one in site.client.workers() if one.alive]
    return worker


@pytest.mark.thorough
def test_a_file_is_offered_without_a_restart_by_a_busy_worker_too_and_a_broken_one_ends_nothing(
    site: Site, own: Path
) -> None:
    site.backend()
    worker = site.worker()
    wait_until(site.client.workers, "the worker is there")
    own.write_text(GOOD)
    wait_until(lambda: "own.py:reward" in offering(site).own_rewards, "an idle worker offers it")
    busy = site.client.create_run(tiny_run(500, every=0))
    site.wait_for_step(busy.id, 1)
    own.write_text("def reward(:\n")
    wait_until(lambda: offering(site).reward_files[0].error, "a busy worker tells of the error")
    assert (offering(site).reward_files[0].error or "").startswith("own.py, line 1: SyntaxError")
    waiting = site.client.create_run(tiny_run(1, every=0, rewards=REWARDS))
    site.client.command(busy.id, "stop")
    assert site.wait_for_end(busy.id).status == "stopped"
    [message] = [one for one in site.client.preflight(tiny_run(1, rewards=REWARDS)).messages if one.level == "warning"]
    assert "own.py:reward" in message.text
    own.write_text(GOOD)
    assert site.wait_for_end(waiting.id).status == "finished"
    assert worker.poll() is None


@pytest.mark.thorough
def test_a_run_keeps_the_text_that_scores_it_and_a_changed_one_ends_it_until_a_person_says_so(
    site: Site, own: Path
) -> None:
    site.backend()
    site.worker()
    own.write_text(GOOD)
    run = site.client.create_run(tiny_run(4000, every=1, rewards=REWARDS))
    site.wait_for_step(run.id, 2)
    site.client.command(run.id, "pause")
    paused = site.wait_for_end(run.id)
    assert paused.status == "paused"
    own.write_text(OTHER)
    wait_until(lambda: offering(site).own_rewards, "the changed file is offered")
    site.client.command(run.id, "resume")
    failed = site.wait_for_end(run.id)
    assert error_of(failed).code == "reward_changed"
    assert error_of(failed).message.startswith("own.py has changed since it scored this run")
    [scored] = site.client.rewards(run.id)
    assert [(one.name, one.text) for one in scored.files] == [("own.py", GOOD)]
    assert site.client.retry_with_changed_rewards(run.id).status == "queued"
    last = site.wait_for_step(run.id, paused.progress.step + 2).progress.step - 1
    site.client.command(run.id, "stop")
    site.wait_for_end(run.id)
    assert [one.files[0].text for one in site.client.rewards(run.id)] == [OTHER, GOOD]
    for step, reward in ((0, 1.0), (last, -1.0)):
        groups = [one for one in site.client.groups(run.id, step=step).items if one.state != "probe"]
        assert {one for group in groups for one in group.rewards} == {reward}


@pytest.mark.thorough
def test_a_retry_with_the_text_put_back_goes_on(site: Site, own: Path) -> None:
    site.backend()
    site.worker()
    own.write_text(GOOD)
    run = site.client.create_run(tiny_run(400, every=1, rewards=REWARDS))
    site.wait_for_step(run.id, 2)
    site.client.command(run.id, "stop")
    site.wait_for_end(run.id)
    own.write_text(OTHER)
    site.client.command(run.id, "retry")
    wait_until(lambda: site.client.run(run.id).status == "failed", "the changed file ends it")
    own.write_text(GOOD)
    wait_until(lambda: offering(site).own_rewards, "the file is offered again")
    step = site.client.run(run.id).progress.step
    site.client.command(run.id, "retry")
    site.wait_for_step(run.id, step + 1)
    assert len(site.client.rewards(run.id)) == 1


def test_a_sample_is_scored_again_by_the_edited_file_and_nothing_else_of_it_changes(site: Site, own: Path) -> None:
    site.backend()
    site.worker()
    own.write_text(GOOD)
    wait_until(lambda: offering(site).own_rewards, "the file is offered")
    sample = {
        "kind": "sample",
        "task": {"kind": "arithmetic"},
        "task_prompts": 20,  # two parts
        "group_size": 4,
        "decoding": {"max_new_tokens": 6},
        "rewards": REWARDS,
    }
    first = site.run_to_end(sample)
    assert first.status == "finished"
    before = groups_of(site, first.id)
    assert len(before) == 20
    own.write_text(OTHER)
    second = site.run_to_end({**sample, "rescores": first.id})
    assert second.status == "finished"
    after = groups_of(site, second.id)
    assert [scores_of(group) for group in before] == [[1.0] * 4] * 20
    assert [scores_of(group) for group in after] == [[-1.0] * 4] * 20
    assert [unscored_text(group) for group in after] == [unscored_text(group) for group in before]
    assert [one.files[0].text for one in site.client.rewards(second.id)] == [OTHER]


def groups_of(site: Site, run_id: int) -> list[Group]:
    return [site.client.group(one.id) for one in site.client.groups(run_id, limit=200, sort="step").items]


def scores_of(group: Group) -> list[float | None]:
    return [one.reward for one in group.completions]


def unscored_text(group: Group) -> object:
    """All of a group that no reward has a say in."""
    completions = [(one.text, one.token_count, one.finish_reason, one.logprob_sum) for one in group.completions]
    return group.step, group.index, group.prompt_id, group.prompt_text, group.prompt, group.answer, completions


def test_a_run_that_names_what_cannot_score_is_refused_with_the_reason_at_once(site: Site, own: Path) -> None:
    own.write_text(f"{GOOD}def lower(text):\n    return text.lower()\n")
    site.backend()
    site.worker()
    wait_until(lambda: offering(site).passed_over, "the worker says what it passed over")
    named = {"functions": [{"name": "mine", "kind": "python", "function": "own.py:lower"}]}
    failed = error_of(site.wait_for_end(site.client.create_run(tiny_run(1, every=0, rewards=named)).id))
    assert (failed.code, failed.message.partition(": line 3: ")[0]) == (
        "reward_unavailable",
        "own.py has no reward lower",
    )
