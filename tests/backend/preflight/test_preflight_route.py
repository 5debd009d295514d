"""Preflight through HTTP: what it knows comes from the workers, the uploads and the earlier runs."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import recorded
from serving import Backend
from sqlalchemy import update

from backend.contract import protocol as p
from backend.contract.grpo import GrpoConfig
from backend.contract.preflight import Preflight, TimeEstimate
from backend.contract.recipes import SMOLLM2
from backend.preflight import gather
from backend.storage.tables import run

WORKER = p.WorkerInfo(name="one", device="CPU, 2 threads", memory_bytes=2**34, store="/store")


def run_a_bit(backend: Backend, config: GrpoConfig, metrics: dict[str, float], evaluation: dict[str, float]) -> None:
    """One run that evaluates, trains two steps, and finishes after ten seconds."""
    client = backend.client
    client.create_run(config.model_dump(mode="json"))
    claim = recorded.claim(client, worker=WORKER, device=WORKER.device)
    client.report(claim.run_id, p.Report(attempt=1, seq=0, step=0, metrics=dict(evaluation)))
    for step in range(2):
        client.report(claim.run_id, p.Report(attempt=1, seq=step + 1, step=step, metrics=dict(metrics)))
    client.finish(claim.run_id, p.Finish(attempt=1, outcome="finished"))
    with backend.services.database.write() as tx:  # the time of day is the machine's, which no test sets
        began = datetime(2026, 1, 1, tzinfo=UTC)
        times = {"started_at": began, "finished_at": began + timedelta(seconds=10)}
        tx.execute(update(run).where(run.c.id == claim.run_id).values(times))


def asked(backend: Backend, **changes: Any) -> Preflight:
    return backend.client.preflight({"kind": "grpo", **changes})


def time_of(backend: Backend, **changes: Any) -> TimeEstimate:
    time = asked(backend, **changes).time
    assert time is not None
    return time


def test_a_wrong_configuration_is_answered_not_refused(backend: Backend) -> None:
    answer = asked(backend, sampling={"group_size": 0}, poem=None)
    assert not answer.ok
    assert {message.field for message in answer.messages} == {"sampling.group_size", "poem"}


def test_earlier_runs_and_workers_are_what_the_estimates_rest_on(backend: Backend) -> None:
    run_a_bit(backend, GrpoConfig(), {"step_time": 2.0, "reward": 0.9}, {"eval/pass@1": 0.4})
    answer, time = asked(backend, budget={"steps": 7}), time_of(backend, budget={"steps": 7})
    assert (time.seconds_per_step, time.total_seconds) == (2.0, 14.0 + 2 * 3.0)
    assert time.basis.endswith(
        "2 similar steps on CPU, 2 threads; 2 evaluations at 3.0 s each, as in similar runs; the total includes loading and checkpoints"
    )
    assert (answer.success_rate, answer.success_basis) == (0.4, "pass@1 before training in run 1")
    assert answer.memory is not None
    assert answer.memory.available_bytes == 2**34


def test_an_interrupted_run_hides_no_evaluations_of_an_older_one(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "STEPS_LOOKED_AT", 2)
    for _ in range(2):
        run_a_bit(backend, GrpoConfig(), {"step_time": 2.0}, {})
    with backend.services.database.write() as tx:
        tx.execute(update(run).where(run.c.id == 2).values(attempt=2))
    assert time_of(backend, budget={"steps": 7}).total_seconds == 14.0 + 2 * 3.0


def test_evaluations_of_another_size_are_not_counted_and_that_is_said(backend: Backend) -> None:
    run_a_bit(backend, GrpoConfig(), {"step_time": 2.0}, {})
    budget = {"steps": 7, "eval_items": 40}
    larger, none = (time_of(backend, budget=one) for one in (budget, budget | {"eval_every": 0}))
    assert larger.total_seconds == none.total_seconds == 14.0
    assert not larger.with_evaluations
    assert larger.basis.endswith(", evaluations not counted")
    assert none.with_evaluations
    assert "evaluation" not in none.basis


def test_without_an_evaluation_the_first_rewards_tell_the_success_rate_if_they_measure_anything(
    backend: Backend,
) -> None:
    run_a_bit(backend, GrpoConfig(), {"step_time": 1.7e308, "reward": 1.7e308}, {"eval/pass@1": 1.7e308})
    answer = asked(backend)
    assert (answer.success_rate, answer.time) == (None, None)
    run_a_bit(backend, GrpoConfig(), {"reward": 0.25}, {})
    assert asked(backend).success_rate == 0.25


OTHER_TASK = {"task": {"kind": "arithmetic", "operands": 4}}


def test_steps_of_the_same_model_and_sizes_count_whatever_the_task_and_those_of_the_task_first(
    backend: Backend,
) -> None:
    run_a_bit(backend, GrpoConfig.model_validate(OTHER_TASK), {"step_time": 3.0, "reward": 0.9}, {})
    time = time_of(backend)
    assert asked(backend).success_rate is None  # which depends on the task
    assert time.seconds_per_step == 3.0
    assert time.basis.startswith("measured here over 2 similar steps of another task on CPU, 2 threads; 5 evaluations")
    run_a_bit(backend, GrpoConfig(), {"step_time": 2.0}, {})
    run_a_bit(backend, GrpoConfig.model_validate(OTHER_TASK), {"step_time": 3.0}, {})
    own = time_of(backend)
    assert own.seconds_per_step == 2.0
    assert "of another task" not in own.basis


@pytest.mark.parametrize("other", [{"sampling": {"group_size": 4}}, {"model": {"source": SMOLLM2}}])
def test_steps_of_another_shape_say_how_fast_the_machine_is(backend: Backend, other: dict[str, Any]) -> None:
    backend.client.ask(p.ClaimRequest(worker=WORKER))
    assert "no model of known shape was timed on CPU, 2 threads yet" in asked(backend, **other).time_unknown
    run_a_bit(backend, GrpoConfig(), {"step_time": 0.5}, {})
    time = time_of(backend, **other)
    assert not time.measured
    smaller = "sampling" in other
    assert (time.seconds_per_step < 0.5) is smaller
    assert sum(time.parts.values()) == pytest.approx(time.seconds_per_step)
    assert "not measured yet: computed from the model's shape at the rate of run 1 on CPU, 2 threads" in time.basis


@pytest.mark.parametrize("part", ["sampling", "algorithm", "budget"])
def test_a_run_of_a_version_without_a_part_of_the_configuration_says_nothing_about_time(
    backend: Backend, part: str
) -> None:
    run_a_bit(backend, GrpoConfig(), {"step_time": 2.0}, {})
    with backend.services.database.write() as tx:
        older = {name: value for name, value in GrpoConfig().model_dump(mode="json").items() if name != part}
        tx.execute(update(run).values(config=older))
    assert time_of(backend).measured is (part == "budget")


def test_a_silent_worker_does_not_count(backend: Backend) -> None:
    backend.client.ask(p.ClaimRequest(worker=WORKER))
    connected = asked(backend)
    backend.clock.now += 3600
    assert (connected.memory and connected.memory.available_bytes) == 2**34
    assert any("no worker is connected" in message.text for message in asked(backend).messages)


def test_a_missing_column_and_a_missing_checkpoint_are_errors_at_their_field(backend: Backend) -> None:
    rows = b'{"question": "1+1", "answer": "2"}\n{"question": "1+2", "answer": "3"}\n'
    task = {
        "kind": "dataset",
        "source": f"upload:{backend.client.upload('x.jsonl', rows).id}",
        "prompt_column": "prompt",
    }
    messages = asked(backend, task=task, model={"source": "run:9@3"}).messages
    assert {one.field for one in messages if one.level == "error"} == {"task.prompt_column", "model.source"}
    assert asked(backend, task=task | {"prompt_column": "question"}).ok


def test_how_often_an_item_is_asked_follows_the_shares_of_the_sources(backend: Backend) -> None:
    rows = [("mine.csv", number) for number in range(57)] + [("second.csv", 100 + number) for number in range(16)]
    lines = [f'{{"prompt": "{number}", "answer": "1", "source": "{source}"}}\n' for source, number in rows]
    upload = backend.client.upload("both.jsonl", "".join(lines).encode())
    source = f"upload:{upload.id}"
    task: dict[str, Any] = {"kind": "dataset", "source": source, "source_column": "source", "held_out": 0}

    def said(**shares: float) -> list[str]:
        answer = asked(backend, task=task | {"shares": shares}, budget={"steps": 100, "eval_every": 0})
        return [one.text for one in answer.messages if one.field == "budget.steps"]

    assert said() == ["1,600 prompts are drawn from 73 training items: each is asked about 22 times"]
    assert said(**{"mine.csv": 1, "second.csv": 3}) == [
        "1,600 prompts are drawn from 73 training items: by the shares of their sources, each of mine.csv is asked about 7 times "
        "and each of second.csv about 75 times"
    ]
    only = "1,600 prompts are drawn from 16 training items: each is asked about 100 times"
    assert said(**{"second.csv": 3}) == [only]
    assert said(**{"second.csv": 3, "nowhere.csv": 1}) == []


def test_the_catalog_offers_every_recipe_model_and_schema(backend: Backend) -> None:
    catalog = backend.client.catalog()
    assert {card.id for card in catalog.recipes} >= {"grpo", "grpo-notebook", "smollm2-arithmetic"}
    assert len(catalog.models) == 2
    assert set(catalog.schemas) == {"grpo", "reward_model", "dpo", "sample", "replay"}
    assert "sampling" in str(catalog.schemas["grpo"]["properties"])
