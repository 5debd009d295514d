"""A run whose rewards need something of a worker waits for one that has it."""

from typing import Any

import pytest
from acting import GRPO, SAMPLE, Actor
from serving import Backend

from backend.contract.base import Json
from backend.contract.client import ApiError
from backend.contract.preference import RewardModelConfig
from backend.contract.protocol import WorkerInfo

POLITE = {"name": "polite", "kind": "python", "function": "my_rewards:is_polite"}
JUDGED = {"name": "judged", "kind": "judge", "endpoint": "strict"}


def with_rewards(*functions: dict[str, Any], **changes: Json) -> dict[str, Json]:
    return {**GRPO, "rewards": {"functions": list(functions)}, **changes}


def worker(
    backend: Backend,
    name: str,
    *,
    judges: tuple[str, ...] = (),
    functions: tuple[str, ...] = (),
    engines: tuple[str, ...] = ("native",),
    store: str = "/store",
) -> Actor:
    actor = Actor(backend.client, name, store)
    actor.info = WorkerInfo(
        name=name,
        device="CPU",
        store=store,
        judges=list(judges),
        reward_functions=list(functions),
        engines=list(engines),
    )
    return actor


def sampling_with(engine: str) -> dict[str, Json]:
    sampling: Any = GRPO["sampling"]
    return {**GRPO, "sampling": {**sampling, "engine": engine}}


def refusal(backend: Backend, config: dict[str, Json]) -> dict[str, str]:
    with pytest.raises(ApiError) as caught:
        backend.client.create_run(config)
    assert caught.value.status == 422
    details: Any = caught.value.details
    return {detail["field"]: detail["message"] for detail in details}


def reward_model(backend: Backend, *, store: str = "/store") -> int:
    """A reward-model run with a checkpoint at step 2."""
    run = backend.client.create_run(RewardModelConfig().model_dump(mode="json"))
    trainer = Actor(backend.client, "trainer", store)
    assert trainer.claim("reward_model") is not None
    trainer.start()
    trainer.save(2)
    trainer.finish()
    return run.id


def policy(backend: Backend, *, store: str = "/store") -> int:
    """A policy run with a checkpoint at step 2."""
    run = backend.client.create_run(GRPO)
    trainer = Actor(backend.client, "trainer", store).begin()
    trainer.save(2)
    trainer.finish()
    return run.id


# ---- judges and functions


def test_only_a_worker_that_has_the_judge_and_the_function_gets_the_run(backend: Backend) -> None:
    run = backend.client.create_run(with_rewards(POLITE, JUDGED))
    functions = ("my_rewards:is_polite", "my_rewards:other")
    assert worker(backend, "plain").claim() is None
    assert worker(backend, "half", functions=functions).claim() is None
    assert worker(backend, "other", judges=("lenient",), functions=functions).claim() is None
    claim = worker(backend, "whole", judges=("strict",), functions=functions).claim()
    assert claim is not None
    assert claim.run_id == run.id


def test_a_run_that_waits_for_its_worker_holds_up_nobody(backend: Backend) -> None:
    for _ in range(30):
        backend.client.create_run(with_rewards(JUDGED))
    plain = backend.client.create_run(GRPO)
    claim = worker(backend, "plain").claim()
    assert claim is not None
    assert claim.run_id == plain.id


def test_a_sample_waits_for_its_worker_too(backend: Backend) -> None:
    backend.client.create_run({**SAMPLE, "rewards": {"functions": [POLITE]}})
    assert worker(backend, "plain").claim("sample") is None
    assert worker(backend, "polite", functions=("my_rewards:is_polite",)).claim("sample") is not None


def test_the_list_of_workers_shows_what_each_has(backend: Backend) -> None:
    worker(backend, "one", judges=("strict",), functions=("a:b",)).claim()
    (shown,) = backend.client.workers()
    assert (shown.judges, shown.reward_functions) == (["strict"], ["a:b"])


def test_preflight_says_what_no_connected_worker_has(backend: Backend) -> None:
    worker(backend, "half", judges=("strict",)).claim()
    answer = backend.client.preflight(with_rewards(POLITE, JUDGED))
    (message,) = [one for one in answer.messages if one.level == "warning" and "connected worker" in one.text]
    assert message.field == "rewards.functions.0.function"
    assert "my_rewards:is_polite" in message.text
    assert "GROUPSCOPE_REWARD_FUNCTIONS" in message.text
    worker(backend, "other half", functions=("my_rewards:is_polite",)).claim()
    answer = backend.client.preflight(with_rewards(POLITE, JUDGED))
    assert any("has all that the run names" in one.text for one in answer.messages)
    worker(backend, "whole", judges=("strict",), functions=("my_rewards:is_polite",)).claim()
    answer = backend.client.preflight(with_rewards(POLITE, JUDGED))
    assert not any("connected worker" in one.text for one in answer.messages)


# ---- sampling engines


def test_only_a_worker_that_has_the_engine_gets_the_run(backend: Backend) -> None:
    run = backend.client.create_run(sampling_with("vllm"))
    assert worker(backend, "plain").claim() is None
    assert worker(backend, "other", engines=("native", "transformers")).claim() is None
    claim = worker(backend, "whole", engines=("native", "vllm")).claim()
    assert claim is not None
    assert claim.run_id == run.id


@pytest.mark.slow
def test_a_worker_that_never_heard_of_engines_gets_native_runs(backend: Backend) -> None:
    backend.client.create_run(sampling_with("transformers"))
    native = backend.client.create_run(GRPO)
    actor = Actor(backend.client, "old", "/store")
    actor.info = WorkerInfo.model_validate({"name": "old", "device": "CPU", "store": "/store"})
    claim = actor.claim()
    assert claim is not None
    assert claim.run_id == native.id
    assert backend.client.workers()[0].engines == ["native"]


def test_preflight_says_that_no_connected_worker_samples_so(backend: Backend) -> None:
    worker(backend, "plain").claim()
    (message,) = [one for one in backend.client.preflight(sampling_with("vllm")).messages if "samples with" in one.text]
    assert (message.level, message.field, message.fix) == ("warning", "sampling.engine", {"sampling.engine": "native"})
    assert "GROUPSCOPE_VLLM_URL" in message.text
    worker(backend, "whole", engines=("native", "vllm")).claim()
    assert not any("samples with" in one.text for one in backend.client.preflight(sampling_with("vllm")).messages)


# ---- reward models


def test_a_claim_says_where_the_reward_model_lies(backend: Backend) -> None:
    source = f"run:{reward_model(backend)}@2"
    learned = {"name": "learned", "kind": "reward_model", "source": source}
    backend.client.create_run(with_rewards(learned))
    assert worker(backend, "elsewhere", store="/other").claim() is None
    claim = worker(backend, "there").claim()
    assert claim is not None
    assert claim.source_checkpoint is None
    assert {name: (one.step, one.store) for name, one in claim.reward_checkpoints.items()} == {source: (2, "/store")}


def test_a_reward_model_that_is_not_there_is_refused_at_its_field(backend: Backend) -> None:
    run_id = reward_model(backend)
    learned = {"name": "learned", "kind": "reward_model", "source": f"run:{run_id}@1"}
    config = with_rewards(POLITE, learned)
    (field, message), *_ = refusal(backend, config).items()
    assert field == "rewards.functions.1.source"
    assert "no checkpoint at step 1" in message
    assert not backend.client.preflight(config).ok


def test_a_policy_is_no_reward_model_and_a_reward_model_no_policy(backend: Backend) -> None:
    learned = {"name": "learned", "kind": "reward_model", "source": f"run:{policy(backend)}@2"}
    assert "trained a policy" in refusal(backend, with_rewards(learned))["rewards.functions.0.source"]
    model: Any = GRPO["model"]
    swapped = with_rewards(POLITE, model={**model, "source": f"run:{reward_model(backend)}@2"})
    assert "trained a reward model" in refusal(backend, swapped)["model.source"]


def test_checkpoints_in_two_stores_are_refused_since_no_worker_reaches_both(backend: Backend) -> None:
    learned = {"name": "learned", "kind": "reward_model", "source": f"run:{reward_model(backend, store='/far')}@2"}
    model: Any = GRPO["model"]
    config = with_rewards(learned, model={**model, "source": f"run:{policy(backend)}@2"})
    assert "/far" in refusal(backend, config)["rewards.functions.0.source"]
    assert not backend.client.preflight(config).ok


def test_a_reward_model_that_a_waiting_run_needs_is_not_deleted(backend: Backend) -> None:
    run_id = reward_model(backend)
    learned = {"name": "learned", "kind": "reward_model", "source": f"run:{run_id}@2"}
    waiting = backend.client.create_run(with_rewards(learned))
    with pytest.raises(ApiError, match=f"Run {waiting.id} is rewarded by a checkpoint of run {run_id}"):
        backend.client.delete_run(run_id)
    backend.client.command(waiting.id, "stop")
    backend.client.delete_run(run_id)
