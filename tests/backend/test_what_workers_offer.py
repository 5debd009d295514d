"""A run whose rewards need something of a worker waits for one that has it."""

from typing import Any

import pytest
from acting import GRPO, SAMPLE, Actor, api_error, began
from serving import Backend

from backend.contract.base import Json
from backend.contract.client import ApiError
from backend.contract.preference import RewardModelConfig
from backend.contract.preflight import Message
from backend.contract.protocol import WorkerInfo

POLITE = {"name": "polite", "kind": "python", "function": "my_rewards:is_polite"}
JUDGED = {"name": "judged", "kind": "judge", "endpoint": "strict"}
FUNCTIONS = ["my_rewards:is_polite", "my_rewards:other"]


def with_rewards(*functions: dict[str, Any], **changes: Json) -> dict[str, Json]:
    return {**GRPO, "rewards": {"functions": list(functions)}, **changes}


def worker(backend: Backend, name: str, *, store: str = "/store", **has: Any) -> Actor:
    actor = Actor(backend.client, name, store)
    actor.info = WorkerInfo.model_validate({"name": name, "device": "CPU", "store": store, **has})
    return actor


def sampling_with(engine: str) -> dict[str, Json]:
    sampling: Any = GRPO["sampling"]
    return {**GRPO, "sampling": {**sampling, "engine": engine}}


def refusal(backend: Backend, config: dict[str, Json]) -> dict[str, str]:
    with api_error(422) as caught:
        backend.client.create_run(config)
    details: Any = caught.value.details
    return {detail["field"]: detail["message"] for detail in details}


def trained(backend: Backend, kind: str = "reward_model", *, store: str = "/store") -> int:
    """A run of this kind with a checkpoint at step 2."""
    config = GRPO if kind == "grpo" else RewardModelConfig().model_dump(mode="json")
    trainer = began(backend.client, config, name="trainer", store=store)
    trainer.save(2)
    trainer.finish()
    return trainer.run_id


def learned(run_id: int, step: int = 2) -> dict[str, Any]:
    return {"name": "learned", "kind": "reward_model", "source": f"run:{run_id}@{step}"}


def from_run(run_id: int) -> dict[str, Json]:
    """The model of a run's checkpoint."""
    model: Any = GRPO["model"]
    return {**model, "source": f"run:{run_id}@2"}


# ---- judges, functions and engines


@pytest.mark.parametrize(
    ("config", "others", "has"),
    [
        (
            with_rewards(POLITE, JUDGED),
            [{}, {"reward_functions": FUNCTIONS}, {"judges": ["lenient"], "reward_functions": FUNCTIONS}],
            {"judges": ["strict"], "reward_functions": FUNCTIONS},
        ),
        ({**SAMPLE, "rewards": {"functions": [POLITE]}}, [{}], {"reward_functions": FUNCTIONS}),
        (sampling_with("vllm"), [{}, {"engines": ["native", "transformers"]}], {"engines": ["native", "vllm"]}),
    ],
    ids=["judge and function", "a sample", "engine"],
)
def test_only_a_worker_that_has_all_that_a_run_names_gets_it_and_is_listed_with_it(
    backend: Backend, config: dict[str, Json], others: list[dict[str, Any]], has: dict[str, Any]
) -> None:
    run = backend.client.create_run(config)
    for number, other in enumerate(others):
        assert worker(backend, f"other {number}", **other).claim() is None
    assert worker(backend, "whole", **has).claimed().run_id == run.id
    [shown] = [one for one in backend.client.workers() if one.name == "whole"]
    assert {name: getattr(shown, name) for name in has} == has


def test_a_run_that_waits_holds_up_nobody_and_who_never_heard_of_engines_gets_native_runs(backend: Backend) -> None:
    for _ in range(30):
        backend.client.create_run(with_rewards(JUDGED))
    backend.client.create_run(sampling_with("transformers"))
    plain = backend.client.create_run(GRPO)
    assert worker(backend, "plain").claimed().run_id == plain.id
    assert backend.client.workers()[0].engines == ["native"]


def test_preflight_says_what_no_connected_worker_has(backend: Backend) -> None:
    def said(config: dict[str, Json]) -> list[Message]:
        return [one for one in backend.client.preflight(config).messages if "connected worker" in one.text]

    both, functions = with_rewards(POLITE, JUDGED), ["my_rewards:is_polite"]
    worker(backend, "half", judges=["strict"]).claim()
    [message] = [one for one in said(both) if one.level == "warning"]
    assert message.field == "rewards.functions.0.function"
    assert "my_rewards:is_polite" in message.text
    assert "GROUPSCOPE_REWARD_FUNCTIONS" in message.text
    worker(backend, "other half", reward_functions=functions).claim()
    assert any("has all that the run names" in one.text for one in said(both))
    [message] = [one for one in said(sampling_with("vllm")) if "samples with" in one.text]
    assert (message.level, message.field, message.fix) == ("warning", "sampling.engine", {"sampling.engine": "native"})
    assert "GROUPSCOPE_VLLM_URL" in message.text
    has: dict[str, Any] = {"judges": ["strict"], "reward_functions": functions, "engines": ["native", "vllm"]}
    worker(backend, "whole", **has).claim()
    assert said(both) == said(sampling_with("vllm")) == []


# ---- reward models


def test_a_claim_says_where_the_reward_model_lies(backend: Backend) -> None:
    run_id = trained(backend)
    backend.client.create_run(with_rewards(learned(run_id)))
    assert worker(backend, "elsewhere", store="/other").claim() is None
    claim = worker(backend, "there").claimed()
    assert claim.source_checkpoint is None
    places = {name: (one.step, one.store) for name, one in claim.reward_checkpoints.items()}
    assert places == {f"run:{run_id}@2": (2, "/store")}


def test_a_model_that_is_not_there_is_another_kind_or_lies_elsewhere_is_refused_at_its_field(backend: Backend) -> None:
    rewards, policy, far = trained(backend), trained(backend, "grpo"), trained(backend, store="/far")
    absent = with_rewards(POLITE, learned(rewards, step=1))
    apart = with_rewards(learned(far), model=from_run(policy))
    assert "no checkpoint at step 1" in refusal(backend, absent)["rewards.functions.1.source"]
    assert "trained a policy" in refusal(backend, with_rewards(learned(policy)))["rewards.functions.0.source"]
    assert "trained a reward model" in refusal(backend, with_rewards(POLITE, model=from_run(rewards)))["model.source"]
    assert "/far" in refusal(backend, apart)["rewards.functions.0.source"], "no worker reaches both stores"
    for config in (absent, apart):
        assert not backend.client.preflight(config).ok


def test_a_reward_model_that_a_waiting_run_needs_is_not_deleted(backend: Backend) -> None:
    run_id = trained(backend)
    waiting = backend.client.create_run(with_rewards(learned(run_id)))
    with pytest.raises(ApiError, match=f"Run {waiting.id} is rewarded by a checkpoint of run {run_id}"):
        backend.client.delete_run(run_id)
    backend.client.command(waiting.id, "stop")
    backend.client.delete_run(run_id)
