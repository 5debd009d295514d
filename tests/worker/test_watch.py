"""The watch over an attempt: what it lets pass, and when it says that the process has to end."""

import threading
from dataclasses import replace

import pytest
from clock import Clock

from backend.contract.protocol import Fail, Finish
from worker.watch import Asked, Patience, Verdict, Watch

PATIENCE = Patience(loading=100, silence=50, stop=10)
STOP, SHUTDOWN, LOST = Asked(stop=True), Asked(shutdown=True), Asked(lost=True)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> Watch:
    return Watch(3, PATIENCE, Asked, lambda verdict: None, threading.Lock(), clock)


def outcome(verdict: Verdict | None) -> tuple[str, str]:
    assert verdict is not None
    assert verdict.end.attempt == 3
    assert verdict.end.error is not None
    ended = verdict.end.outcome if isinstance(verdict.end, Finish) else "failed"
    return ended, verdict.end.error.message


def test_nothing_ends_while_training_goes_on(watch: Watch, clock: Clock) -> None:
    for _ in range(100):
        watch.show("update")
        clock.now += 9
        for asked in (Asked(), STOP, SHUTDOWN, LOST):
            assert watch.verdict(asked) is None


def test_a_stop_that_nobody_heeds_ends_the_process_and_says_where(watch: Watch, clock: Clock) -> None:
    watch.show("loading the model")
    clock.now += 90
    assert watch.verdict(STOP) is None  # it was asked for just now
    clock.now += 10
    assert watch.verdict(STOP) is None
    clock.now += 0.1
    ended = watch.verdict(Asked(stop=True))
    assert outcome(ended) == (
        "stopped",
        "Stopped: did not answer in the phase 'loading the model' for 10 s; the worker's process was ended.",
    )


def test_slow_steps_are_given_three_times_the_longest_silence_to_answer_a_stop(clock: Clock) -> None:
    watch = Watch(3, replace(PATIENCE, silence=1000), Asked, lambda verdict: None, threading.Lock(), clock)
    watch.show("rollout")
    clock.now += 20
    watch.show("update")
    watch.verdict(STOP)
    clock.now += 59
    assert watch.verdict(STOP) is None
    clock.now += 2
    assert outcome(watch.verdict(STOP))[0] == "stopped"


def test_a_process_that_waits_for_another_lives_as_long_as_that_one_gets_further(watch: Watch, clock: Clock) -> None:
    watch.show("rollout")
    for _ in range(5):
        assert watch.verdict(STOP) is None
        clock.now += 9
        watch.alive()
    clock.now += 40
    assert outcome(watch.verdict(STOP))[0] == "stopped"


def test_the_deadline_of_silence_ends_what_a_stop_would_still_wait_for(watch: Watch, clock: Clock) -> None:
    watch.show("rollout")
    clock.now += 20
    watch.show("update")
    watch.verdict(STOP)
    clock.now += 51
    assert outcome(watch.verdict(STOP))[0] == "failed"
    assert watch.verdict(Asked(stop_at_once=True)) is not None


def test_a_second_stop_and_a_second_signal_wait_for_nothing(watch: Watch) -> None:
    for phase in ("starting", "loading the task", "update", "checkpoint", None):
        watch.show(phase)
        assert outcome(watch.verdict(Asked(stop_at_once=True)))[0] == "stopped"
        assert outcome(watch.verdict(Asked(shutdown_at_once=True)))[0] == "released"


@pytest.mark.parametrize("asked", [SHUTDOWN, LOST], ids=["a shutdown", "a lease that was lost"])
def test_a_thread_that_heeds_nothing_gives_the_run_back_and_is_replaced(
    watch: Watch, clock: Clock, asked: Asked
) -> None:
    watch.show("rollout")
    watch.verdict(asked)
    clock.now += 10.1
    ending, says = outcome(watch.verdict(asked))
    assert ending == "released"
    if asked is SHUTDOWN:
        assert says == ("Asked to end: did not answer in the phase 'rollout' for 10 s; the worker's process was ended.")


def test_each_phase_of_loading_has_a_deadline_of_its_own_and_fails_the_run_for_good(watch: Watch, clock: Clock) -> None:
    for phase in ("loading the task", "loading the model"):
        watch.show(phase)
        clock.now += 100
        assert watch.verdict(Asked()) is None
    clock.now += 1
    verdict = watch.verdict(Asked())
    assert outcome(verdict)[0] == "failed"
    assert verdict is not None
    assert isinstance(verdict.end, Fail)
    assert not verdict.end.retryable
    assert "No end in the phase 'loading the model' after 100 s" in verdict.end.error.message
    assert "GROUPSCOPE_LOADING_SECONDS" in verdict.end.error.message


def test_silence_in_training_goes_on_from_the_last_checkpoint_in_a_fresh_process(watch: Watch, clock: Clock) -> None:
    watch.show("rollout")
    clock.now += 51
    verdict = watch.verdict(Asked())
    assert verdict is not None
    assert isinstance(verdict.end, Fail)
    assert verdict.end.retryable
    assert "GROUPSCOPE_SILENCE_SECONDS" in verdict.end.error.message


def test_a_checkpoint_is_written_to_its_end_although_a_stop_waits(watch: Watch, clock: Clock) -> None:
    watch.show("checkpoint")
    watch.verdict(STOP)
    clock.now += 49
    assert watch.verdict(STOP) is None
    assert watch.verdict(SHUTDOWN) is None


def test_an_attempt_that_was_left_ends_no_process() -> None:
    ended, lock = threading.Event(), threading.Lock()
    watch = Watch(1, PATIENCE, lambda: Asked(stop_at_once=True), lambda verdict: ended.set(), lock)
    with lock:
        watch.__enter__()
        assert not ended.wait(0.5)  # it has come to its verdict, and waits for the lock
        watch._left.set()  # as leaving does, which had the lock first
    watch._thread.join(10)
    assert not watch._thread.is_alive()
    assert not ended.is_set()
