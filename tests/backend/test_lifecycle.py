"""A run's life, as the worker and the person move it."""

from functools import partial

import pytest
from acting import GRPO, SAMPLE, Actor, api_error, began, group
from serving import Backend

from backend.app import sweep_once
from backend.contract import protocol as p
from backend.contract import records as r
from backend.contract.client import ApiError
from backend.contract.groups import StepSummary


def status(backend: Backend, run_id: int) -> str:
    return backend.client.run(run_id).status


def refusal(client_call: object) -> str:
    with api_error(409, "conflict") as caught:
        client_call()  # type: ignore[operator]
    return caught.value.message


def said(backend: Backend, run_id: int) -> list[str]:
    return [line.message for line in backend.client.logs(run_id).items]


def test_a_run_goes_from_the_form_to_the_end(backend: Backend) -> None:
    client = backend.client
    run = client.create_run(GRPO, name="first", tags=["demo"], notes="why")
    assert (run.status, run.queue_position, run.progress.total_steps) == ("queued", 1, 100)
    actor = Actor(client).begin()
    assert actor.beat().requested == "nothing"
    actor.report(0, metrics={"reward": 1.0, "kl": None}, logs=[p.LogLine(message="hello")])
    actor.save(1)
    running = client.run(run.id)
    assert (running.status, running.worker, running.device, running.progress.step) == ("running", "one", "CPU", 1)
    assert running.summary == {"reward": 1.0, "kl": None}
    assert running.reward_sparkline == [1.0]
    assert client.metrics(run.id).series["kl"].value == [None]
    [listed] = client.groups(run.id).items
    assert (listed.best, listed.worst) == ("text 0", "text 1")
    assert (listed.rewards, listed.advantages) == ([1.0, 0.0], [0.5, -0.5])
    whole = client.group(listed.id)
    assert [one.text for one in whole.completions] == ["text 0", "text 1"]
    assert whole.completions[0].rewards[0].name == "correctness"
    assert client.steps(run.id) == [StepSummary(step=0, states={"live": 1})]
    assert [line.message for line in client.logs(run.id).items] == ["hello"]
    assert [one.step for one in client.checkpoints(run.id)] == [1]
    [worker] = client.workers()
    assert (worker.run_id, worker.run_name, worker.alive) == (run.id, "first", True)
    actor.finish()
    finished = client.run(run.id)
    assert (finished.status, finished.failures) == ("finished", 0)
    assert finished.finished_at is not None
    assert client.workers()[0].run_id is None


def test_a_pause_takes_effect_at_the_step_boundary_and_the_run_goes_on_from_its_checkpoint(backend: Backend) -> None:
    actor = began(backend.client)
    actor.report(0)
    actor.save(1)
    assert backend.client.command(actor.run_id, "pause").status == "running"
    assert actor.beat().requested == "pause"
    actor.finish("paused")
    paused = backend.client.run(actor.run_id)
    assert (paused.status, paused.requested, paused.failures) == ("paused", "nothing", 0)
    assert said(backend, actor.run_id) == ["attempt 1 ended after step 1: somebody paused the run"]
    assert Actor(backend.client).claim() is None
    backend.client.command(actor.run_id, "resume")
    claim = Actor(backend.client, "two").claimed()
    assert (claim.attempt, claim.resume and claim.resume.step) == (2, 1)


def test_a_pause_that_was_taken_back_too_late_queues_the_run_again(backend: Backend) -> None:
    actor = began(backend.client)
    backend.client.command(actor.run_id, "pause")
    assert actor.beat().requested == "pause"
    backend.client.command(actor.run_id, "resume")
    actor.finish("paused")
    assert status(backend, actor.run_id) == "queued"


def test_a_stop_beats_a_pause_and_a_graceful_shutdown(backend: Backend) -> None:
    for outcome in ("paused", "released", "stopped"):
        actor = began(backend.client)
        backend.client.command(actor.run_id, "pause")
        backend.client.command(actor.run_id, "stop")
        for verb in ("pause", "resume"):
            with pytest.raises(ApiError, match="was asked to stop"):
                backend.client.command(actor.run_id, verb)
        actor.finish(outcome)  # type: ignore[arg-type]
        assert status(backend, actor.run_id) == "stopped"
        assert backend.client.run(actor.run_id).finished_at is not None


def test_a_second_stop_is_told_to_the_worker_and_a_third_changes_nothing(backend: Backend) -> None:
    actor = began(backend.client)
    backend.client.command(actor.run_id, "stop")
    assert (actor.beat().requested, actor.beat().stop_at_once) == ("stop", False)
    for _ in range(2):
        assert backend.client.command(actor.run_id, "stop").requested == "stop_at_once"
        assert (actor.beat().requested, actor.beat().stop_at_once) == ("stop", True)
    with pytest.raises(ApiError, match="was asked to stop at once"):
        backend.client.command(actor.run_id, "pause")


def test_a_stopped_sweep_that_is_stopped_again_lets_its_runs_end_their_steps(backend: Backend) -> None:
    sweep = backend.client.create_sweep("two", [{"config": GRPO}, {"config": GRPO}])
    Actor(backend.client).begin()
    for _ in range(2):
        backend.client.stop_sweep(sweep.id)
    assert [backend.client.run(run.id).requested for run in sweep.runs] == ["stop", "nothing"]


def test_why_an_attempt_was_ended_stands_on_the_stopped_runs_page_and_in_its_log(backend: Backend) -> None:
    actor = began(backend.client)
    backend.client.command(actor.run_id, "stop")
    error = r.RunError(code="process_ended", message="Stopped: it did not answer.")
    backend.client.finish(actor.run_id, p.Finish(attempt=actor.attempt, outcome="stopped", error=error))
    ended = backend.client.run(actor.run_id)
    assert (ended.status, ended.error) == ("stopped", error)
    [line] = backend.client.logs(actor.run_id).items
    assert (line.level, line.message) == ("warning", "attempt 1 ended: Stopped: it did not answer.")


def test_a_released_run_queues_again_and_costs_no_budget(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    for _ in range(5):
        Actor(backend.client).begin().finish("released")
    assert (status(backend, run.id), backend.client.run(run.id).failures) == ("queued", 0)
    assert said(backend, run.id)[-1].endswith("ended after step 0: its worker was asked to end, and gave the run back")


def test_what_waits_is_paused_and_stopped_at_once(backend: Backend) -> None:
    first, second = backend.client.create_run(GRPO), backend.client.create_run(GRPO)
    assert backend.client.command(first.id, "pause").status == "paused"
    assert backend.client.run(second.id).queue_position == 1
    assert backend.client.command(first.id, "stop").status == "stopped"
    assert backend.client.command(second.id, "stop").status == "stopped"
    assert Actor(backend.client).claim() is None


def test_retryable_failures_queue_again_until_the_budget_is_spent_and_stay_in_the_log(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    for expected in ("queued", "queued", "failed"):
        actor = Actor(backend.client).begin()
        assert backend.client.run(run.id).error is None
        actor.fail(retryable=True)
        assert status(backend, run.id) == expected
    failed = backend.client.run(run.id)
    assert (failed.failures, failed.error and failed.error.code) == (3, "out_of_memory")
    assert [line.level for line in backend.client.logs(run.id).items] == ["error"] * 3


def test_a_mistake_in_the_configuration_fails_at_once_and_a_retry_starts_with_a_clean_slate(backend: Backend) -> None:
    actor = began(backend.client)
    actor.fail()
    assert actor.fail().duplicate
    assert status(backend, actor.run_id) == "failed"
    retried = backend.client.command(actor.run_id, "retry")
    assert (retried.status, retried.failures, retried.error, retried.finished_at) == ("queued", 0, None, None)
    assert Actor(backend.client).claimed().attempt == 2


def test_a_retry_says_that_the_checkpoint_it_starts_from_or_the_upload_it_reads_was_deleted(backend: Backend) -> None:
    client, source = backend.client, backend.client.create_run(GRPO)
    actor = Actor(client).begin()
    actor.report(0)
    actor.save(1)
    actor.finish()
    upload = client.upload("sums", b'{"prompt": "1+1=", "answer": "2"}\n{"prompt": "1+2=", "answer": "3"}\n')
    starting = client.create_run({**GRPO, "model": {"source": f"run:{source.id}@1"}})
    reading = client.create_run({**GRPO, "task": {"kind": "dataset", "source": f"upload:{upload.id}"}})
    for run in (starting, reading):
        client.command(run.id, "stop")
        assert client.command(run.id, "retry").status == "queued"
        client.command(run.id, "stop")
    client.delete_run(source.id)
    client.delete_upload(upload.id)
    changes = "model.source: run 1 has no checkpoint at step 1", f"its data: upload {upload.id} was deleted"
    for run, change in zip((starting, reading), changes, strict=True):
        assert f"clone it and change {change}" in refusal(partial(client.command, run.id, "retry"))
        assert status(backend, run.id) == "stopped"


def test_a_refused_command_says_the_status_and_what_to_do(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    assert "is queued: only a paused run" in refusal(lambda: backend.client.command(run.id, "resume"))
    assert "is queued: only a failed or stopped run" in refusal(lambda: backend.client.command(run.id, "retry"))
    actor = Actor(backend.client).begin()
    assert "stop it first" in refusal(lambda: backend.client.delete_run(run.id))
    actor.finish()
    for verb in ("pause", "resume", "stop", "retry"):
        assert "is finished" in refusal(partial(backend.client.command, run.id, verb))


def test_a_sample_has_a_single_step(backend: Backend) -> None:
    actor = began(backend.client, SAMPLE)
    actor.report(0, groups=[group(rewards=[1.0])])
    actor.finish()
    assert backend.client.run(actor.run_id).progress.step == backend.client.run(actor.run_id).progress.total_steps == 1
    assert backend.client.runs(kind="training").items == []
    assert [one.id for one in backend.client.runs().items] == [actor.run_id]


def test_progress_within_a_step_and_the_time_to_go_are_shown(backend: Backend) -> None:
    actor = began(backend.client)
    assert backend.client.run(actor.run_id).progress.phase == "starting"
    actor.beat(r.Progress(phase="rollout", done=3, total=128))
    within = backend.client.run(actor.run_id).progress
    assert (within.phase, within.done, within.total, within.eta_seconds) == ("rollout", 3, 128, None)
    actor.report(0, seconds=100.0, metrics={"step_time": 2.0})
    assert backend.client.run(actor.run_id).progress.eta_seconds == 2.0 * 99
    assert backend.client.run(actor.run_id).progress.phase is None
    for step in range(1, 20):
        actor.report(step, seconds=100.0 + 3.0 * step)
    assert backend.client.run(actor.run_id).progress.eta_seconds == pytest.approx(3.0 * 80)
    actor.finish()
    assert backend.client.run(actor.run_id).progress.eta_seconds is None


def test_a_run_whose_worker_died_settles_as_the_person_asked(backend: Backend) -> None:
    for verb, expected in (("stop", "stopped"), ("pause", "paused")):
        run_id = began(backend.client).run_id
        backend.client.command(run_id, verb)
        sweep_once(backend.services)
        assert status(backend, run_id) == "running", "its lease is alive"
        backend.clock.now += 31
        sweep_once(backend.services)
        assert status(backend, run_id) == expected
        if expected == "paused":
            backend.client.command(run_id, "stop")


def test_a_run_that_kills_its_workers_is_given_up_and_says_why(backend: Backend) -> None:
    run = backend.client.create_run(GRPO)
    for attempt in (1, 2, 3):
        assert Actor(backend.client).claimed().attempt == attempt
        backend.clock.now += 31
    assert Actor(backend.client).claim() is None
    sweep_once(backend.services)
    assert said(backend, run.id) == [f"attempt {n} ended: its worker was not heard any more" for n in (1, 2)]
    failed = backend.client.run(run.id)
    assert (failed.status, failed.failures, failed.error and failed.error.code) == ("failed", 3, "worker_lost")


def test_every_attempt_begins_from_the_commit_of_the_first(backend: Backend) -> None:
    run, first, other = backend.client.create_run(GRPO), "a" * 40, "b" * 40
    actor = Actor(backend.client)
    assert actor.claimed().model_commit is None
    backend.client.start(run.id, p.Start(attempt=1, from_step=0, device="CPU", model_commit=first))
    assert backend.client.run(run.id).model_commit == first
    actor.finish("released")
    assert actor.claimed().model_commit == first
    backend.client.start(run.id, p.Start(attempt=2, from_step=0, device="CPU", model_commit=other))
    assert backend.client.run(run.id).model_commit == first


def test_what_a_run_trained_is_counted_over_its_attempts_without_queue_and_pauses(backend: Backend) -> None:
    client = backend.client
    run_id = client.create_run(GRPO).id
    assert client.run(run_id).trained_seconds is None
    first = Actor(client).begin()
    first.report(0, metrics={"reward": 1.0}, seconds=10.0)
    first.save(1)
    client.command(run_id, "pause")
    first.finish("paused")
    backend.clock.now += 2 * 86_400
    client.command(run_id, "resume")
    second = Actor(client).begin(1)
    assert client.run(run_id).trained_seconds == 10
    second.report(1, metrics={"reward": 1.0}, seconds=25.0)
    second.report(logs=[p.LogLine(message="the end")])
    second.finish()
    assert client.run(run_id).trained_seconds == 25
    assert [run.trained_seconds for run in client.runs().items] == [25]
