"""Runs on preference pairs in the backend: created, listed, claimed, and what may start from what they leave."""

import pytest
from acting import GRPO, Actor
from serving import Backend

from backend.contract.base import Json
from backend.contract.client import ApiError
from backend.contract.preference import DpoConfig, RewardModelConfig

REWARD_MODEL: dict[str, Json] = RewardModelConfig().model_dump(mode="json")
DPO: dict[str, Json] = DpoConfig().model_dump(mode="json")
KINDS = ("grpo", "reward_model", "dpo", "sample")


def left_by(backend: Backend, config: dict[str, Json]) -> int:
    """A finished run of this configuration with checkpoint 1."""
    backend.client.create_run(config)
    actor = Actor(backend.client)
    assert actor.claim(*KINDS) is not None
    actor.start()
    actor.report(0, groups=[], metrics={"loss": 0.69})
    actor.save(1)
    actor.finish()
    return actor.run_id


def test_they_are_listed_with_the_other_trainings_and_by_their_kind(backend: Backend) -> None:
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
        with pytest.raises(ApiError, match="scores completions and writes none") as caught:
            backend.client.create_run(wrong)
        assert caught.value.status == 422
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
    backend.client.create_run({**DPO, "pairs": {**pairs, "chosen_column": "prompt", "rejected_column": "prompt"}})
    with pytest.raises(ApiError, match="run 1"):
        backend.client.delete_upload(upload.id)


def test_a_step_of_the_same_shape_tells_how_long_the_next_run_takes(backend: Backend) -> None:
    backend.client.create_run(REWARD_MODEL)
    actor = Actor(backend.client)
    assert actor.claim(*KINDS) is not None
    actor.start()
    actor.report(0, groups=[], metrics={"loss": 0.69, "step_time": 3.0})
    time = backend.client.preflight(REWARD_MODEL).time
    assert time is not None
    assert time.seconds_per_step == 3.0
    assert backend.client.preflight(DPO).time is None
    assert backend.client.preflight({**REWARD_MODEL, "budget": {"pairs_per_step": 4}}).time is None
