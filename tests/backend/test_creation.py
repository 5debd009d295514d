"""Runs are created once, from what the person sent, and stay what they were created as."""

import sqlite3
from contextlib import closing
from typing import Any, cast

import pytest
from acting import GRPO, SAMPLE, Actor, api_error, began
from serving import Backend
from sqlalchemy import text

from backend.contract.base import Json
from backend.contract.client import ApiError
from backend.contract.preference import DpoConfig, RewardModelConfig
from backend.contract.reading import FIRST, NEWEST
from backend.contract.records import RunUpdate
from backend.contract.reward import Rewards
from backend.contract.stored import get, put

REWARD_MODEL: dict[str, Json] = RewardModelConfig().model_dump(mode="json")
DPO: dict[str, Json] = DpoConfig().model_dump(mode="json")
RESCORING: dict[str, Any] = {**SAMPLE, "rewards": {}}


def test_the_stored_configuration_is_shown_as_it_is_even_if_it_would_be_refused_today(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    with backend.services.database.write() as tx:
        tx.execute(text("update run set config = json_set(config, '$.from_the_future', json('[1]'))"))
    assert backend.client.run(run.id).config["from_the_future"] == [1]
    assert Actor(backend.client).claimed().config["from_the_future"] == [1]


def test_a_clone_differs_by_its_overrides_and_knows_its_parent(backend: Backend) -> None:
    run = backend.client.create_run(GRPO, name="first", tags=["a"], priority=3)
    clone = backend.client.clone_run(run.id, {"sampling.group_size": 4, "rewards.functions.0.weight": 0.5})
    expected = {**GRPO, "sampling": {**GRPO["sampling"], "group_size": 4}}  # type: ignore[dict-item]
    assert clone.config["sampling"] == expected["sampling"]
    assert clone.config["rewards"]["functions"][0]["weight"] == 0.5  # type: ignore[index,call-overload]
    assert (clone.parent_id, clone.name, clone.tags, clone.status) == (run.id, "first (copy)", ["a"], "queued")
    assert backend.client.run(run.id).config == GRPO
    assert backend.client.clone_run(clone.id, {}, name="mine").name == "mine"


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"sampling.group_size": 1}, "sampling.group_size"),
        ({"sampling.nothing": 1}, "sampling.nothing"),
        ({"nothing.at.all": 1}, "nothing.at.all"),
        ({"rewards.functions.9.weight": 1}, "rewards.functions.9.weight"),
        ({"model.source": "run:9@1"}, "model.source"),
        ({"optimizer.warmup_steps": 101}, "optimizer.warmup_steps"),
        ({"": 1}, ""),
    ],
)
def test_a_wrong_override_is_refused_at_its_field(
    shared_backend: Backend, overrides: dict[str, int], field: str
) -> None:
    run = shared_backend.client.create_run(GRPO)
    with api_error(422) as caught:
        shared_backend.client.clone_run(run.id, overrides)
    assert [error["field"] for error in caught.value.details] == [field]  # type: ignore[index,union-attr,call-overload]


def test_a_run_gets_a_name_and_its_people_can_change_what_is_theirs(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    assert run.name == "arithmetic on tiny-arithmetic"
    assert backend.client.create_run({**GRPO, "recipe": "rloo"}).name == "rloo, arithmetic on tiny-arithmetic"
    backend.client.update_run(run.id, RunUpdate(name="new", priority=7))
    changed = backend.client.update_run(run.id, RunUpdate(tags=["x", "y"], notes="because"))
    assert (changed.name, changed.priority, changed.tags, changed.notes) == ("new", 7, ["x", "y"], "because")


def test_lists_are_newest_first_filtered_and_paged(backend: Backend) -> None:
    for number in range(5):
        backend.client.create_run(GRPO, name=f"run {number} 100%", tags=["even" if number % 2 == 0 else "odd"])
    backend.client.create_run(SAMPLE, name="try")
    first = backend.client.runs(kind="training", limit=2)
    second = backend.client.runs(kind="training", limit=2, cursor=first.next_cursor)
    third = backend.client.runs(kind="training", limit=2, cursor=second.next_cursor)
    names = [run.name for page in (first, second, third) for run in page.items]
    assert names == [f"run {number} 100%" for number in (4, 3, 2, 1, 0)]
    assert third.next_cursor is None
    assert [run.name[4] for run in backend.client.runs(kind="training", tag="even").items] == ["4", "2", "0"]
    assert backend.client.runs(kind="training", tag="eve").items == []
    assert [run.name[4] for run in backend.client.runs(kind="training", search="RUN 3 100%").items] == ["3"]
    assert backend.client.runs(kind="training", search="_").items == [], "what SQL reads as a pattern is a letter here"
    assert len(backend.client.runs(kind="training", status="queued").items) == 5
    assert backend.client.runs(kind="training", status="running").items == []
    assert [run.name for run in backend.client.runs(kind="sample").items] == ["try"]


@pytest.mark.slow
def test_the_queue_serves_samples_first_then_priority_then_age(backend: Backend) -> None:
    old, new = backend.client.create_run(GRPO), backend.client.create_run(GRPO)
    urgent = backend.client.create_run(GRPO, priority=5)
    sample = backend.client.create_run(SAMPLE, priority=-5)
    order = [sample.id, urgent.id, old.id, new.id]
    shown = {run.id: run.queue_position for run in backend.client.runs().items}
    assert sorted(shown, key=lambda run_id: shown[run_id] or 0) == order
    assert [Actor(backend.client, f"worker {number}").claimed().run_id for number in range(4)] == order
    assert {run.queue_position for run in backend.client.runs().items} == {None}


def test_a_busy_worker_hears_of_samples_and_claims_nothing_else(backend: Backend) -> None:
    trainer = began(backend.client, name="busy")
    assert not trainer.beat().samples_waiting
    backend.client.create_run(GRPO)
    sample = backend.client.create_run(SAMPLE)
    assert trainer.beat().samples_waiting
    serving = Actor(backend.client, "busy")
    assert serving.claimed("sample").run_id == sample.id
    assert serving.claim("sample") is None
    assert not trainer.beat().samples_waiting
    assert backend.client.workers()[0].run_id == trainer.run_id


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rescores": 999}, "names run 999, which is not a finished sample; sample again"),
        ({"seed": 8}, "which has another seed"),
        ({"prompts": ["What is 1 + 1?"]}, "which has another prompts"),
        ({"group_size": 3}, "which has another group_size"),
    ],
)
def test_only_a_finished_sample_that_asked_the_same_can_be_scored_again(
    backend: Backend, changes: dict[str, Any], says: str
) -> None:
    sample = backend.client.create_run(RESCORING)
    again = RESCORING | {"rescores": sample.id}
    with pytest.raises(ApiError, match="which is not a finished sample"):
        backend.client.create_run(again)  # it is queued
    Actor(backend.client).begin().finish()
    scored = backend.client.create_run(again | {"rewards": {"max_unscored": 0.5}})
    assert scored.config["rescores"] == sample.id
    with pytest.raises(ApiError, match=says) as caught:
        backend.client.create_run(again | changes)
    assert [error["field"] for error in caught.value.details] == ["rescores"]  # type: ignore[index,union-attr,call-overload]


def left_by(backend: Backend, config: dict[str, Json]) -> int:
    """A finished run of this configuration with checkpoint 1."""
    actor = began(backend.client, config)
    actor.report(0, groups=[], metrics={"loss": 0.69})
    actor.save(1)
    actor.finish()
    return actor.run_id


def test_how_answers_are_read_is_written_down_and_a_run_from_before_keeps_its_way_in_forks_and_when_scored_again(
    backend: Backend,
) -> None:
    unread = put(GRPO, "rewards", Rewards().model_dump(mode="json"))
    run = backend.client.create_run(cast("dict[str, Json]", unread))
    assert get(run.config, "rewards.reading") == NEWEST
    actor = Actor(backend.client).begin()
    actor.save(4)
    actor.finish()
    sample = backend.client.create_run({**SAMPLE, "rewards": get(unread, "rewards")})
    Actor(backend.client).begin().finish()
    with closing(sqlite3.connect(backend.home / "groupscope.db")) as database, database:
        database.execute("UPDATE run SET config = json_remove(config, '$.rewards.reading')")
    fork = backend.client.fork_run(run.id, 4, {"budget.steps": 300})
    again = backend.client.create_run({**sample.config, "rewards": get(unread, "rewards"), "rescores": sample.id})
    said = backend.client.preflight(cast("dict[str, Json]", unread), parent_id=run.id).messages
    assert f"run {run.id} compared answers as they stand" in " ".join(one.text for one in said)
    clone = backend.client.clone_run(run.id, {})
    ways = [get(backend.client.run(one.id).config, "rewards.reading") for one in (fork, again, clone)]
    assert ways == [FIRST, FIRST, NEWEST]


def test_runs_on_pairs_are_listed_with_the_other_trainings_and_by_their_kind(backend: Backend) -> None:
    for config in (REWARD_MODEL, DPO, GRPO):
        backend.client.create_run(config)
    backend.client.create_run({"kind": "sample", "prompts": ["a"]})
    assert [run.kind for run in backend.client.runs(kind="training").items] == ["grpo", "dpo", "reward_model"]
    assert [run.kind for run in backend.client.runs(kind="dpo").items] == ["dpo"]
    [run] = backend.client.runs(kind="reward_model").items
    assert (run.name, run.progress.total_steps) == ("reward model on tiny-arithmetic", 100)


def test_a_run_starts_from_a_dpo_runs_weights_but_not_from_a_reward_model(backend: Backend) -> None:
    policy, judge = left_by(backend, DPO), left_by(backend, REWARD_MODEL)
    backend.client.create_run({**GRPO, "model": {"source": f"run:{policy}@1"}})
    for config in (GRPO, REWARD_MODEL, {"kind": "sample", "prompts": ["a"]}):
        wrong = {**config, "model": {"source": f"run:{judge}@1"}}
        with api_error(422, match="scores completions and writes none"):
            backend.client.create_run(wrong)
        answer = backend.client.preflight(wrong)
        assert [message.field for message in answer.messages if message.level == "error"] == ["model.source"]


def test_own_pairs_need_their_three_columns(backend: Backend) -> None:
    upload = backend.client.upload("pairs.jsonl", b'{"prompt": "a", "chosen": "b"}\n{"prompt": "c", "rejected": "d"}\n')
    pairs: dict[str, Json] = {"kind": "dataset", "source": f"upload:{upload.id}"}
    answer = backend.client.preflight({**DPO, "pairs": pairs})
    found = {message.field: message.text for message in answer.messages if message.level == "error"}
    assert found == {
        "pairs.chosen_column": "column chosen is missing in row 2",
        "pairs.rejected_column": "column rejected is missing in row 1",
    }
    with pytest.raises(ApiError, match="column chosen is missing"):
        backend.client.create_run({**DPO, "pairs": pairs})
    with pytest.raises(ApiError, match="chosen_column: prompt is the prompt column, too"):
        backend.client.create_run({**DPO, "pairs": {**pairs, "chosen_column": "prompt"}})
    again = backend.client.upload("pairs.jsonl", b'{"prompt": "a", "chosen": "b", "rejected": "c"}\n' * 2)
    backend.client.create_run(
        {**DPO, "pairs": {**pairs, "source": f"upload:{again.id}", "held_out": 0}, "budget": {"eval_every": 0}}
    )
    with pytest.raises(ApiError, match="run 1"):
        backend.client.delete_upload(again.id)


def test_a_step_of_the_same_shape_tells_how_long_the_next_run_takes(backend: Backend) -> None:
    actor = began(backend.client, REWARD_MODEL)
    actor.report(0, groups=[], metrics={"loss": 0.69, "step_time": 3.0})
    time = backend.client.preflight(REWARD_MODEL).time
    assert time is not None
    assert time.seconds_per_step == 3.0
    assert backend.client.preflight(DPO).time is None
    assert backend.client.preflight({**REWARD_MODEL, "budget": {"pairs_per_step": 4}}).time is None
