"""The watch over an attempt: what it lets pass, and when it says that the process has to end."""

import threading
from dataclasses import replace

import pytest
from clock import Clock

from backend.contract.protocol import Finish
from worker.watch import Asked, Patience, Watch

PATIENCE = Patience(loading=100, silence=50, stop=10)
NOTHING, STOP, SHUTDOWN, LOST = Asked(), Asked(stop=True), Asked(shutdown=True), Asked(lost=True)
STOP_AT_ONCE, SHUTDOWN_AT_ONCE = Asked(stop_at_once=True), Asked(shutdown_at_once=True)


class TimedWatch(Watch):
    """One whose time passes when a test says so."""

    def __init__(self, patience: Patience = PATIENCE) -> None:
        self.clock = Clock()
        super().__init__(3, patience, Asked, lambda verdict: None, threading.Lock(), self.clock)

    def after(self, seconds: float, asked: Asked) -> str | None:
        """How the process has to end, if it has to, this much later: "failed" for good, or "retried"."""
        self.clock.now += seconds
        verdict = self.verdict(asked)
        if verdict is None:
            return None
        assert verdict.end.attempt == 3
        assert verdict.end.error is not None
        self.says = verdict.end.error.message
        if isinstance(verdict.end, Finish):
            return verdict.end.outcome
        return "retried" if verdict.end.retryable else "failed"


@pytest.fixture
def watch() -> TimedWatch:
    return TimedWatch()


def test_nothing_ends_while_training_goes_on(watch: TimedWatch) -> None:
    for _ in range(100):
        watch.show("update")
        assert watch.after(9, NOTHING) is None
        for asked in (STOP, SHUTDOWN, LOST):
            assert watch.after(0, asked) is None


def test_a_stop_that_nobody_heeds_ends_the_process_and_says_where(watch: TimedWatch) -> None:
    watch.show("loading the model")
    # it is asked for after 90 s in this phase
    assert [watch.after(seconds, STOP) for seconds in (90, 10, 0.1)] == [None, None, "stopped"]
    assert watch.says == (
        "Stopped: did not answer in the phase 'loading the model' for 10 s; the worker's process was ended."
    )


def test_slow_steps_are_given_three_times_the_longest_silence_to_answer_a_stop() -> None:
    watch = TimedWatch(replace(PATIENCE, silence=1000))
    watch.show("rollout")
    watch.clock.now += 20
    watch.show("update")
    assert [watch.after(seconds, STOP) for seconds in (0, 59, 2)] == [None, None, "stopped"]


def test_a_process_that_waits_for_another_lives_as_long_as_that_one_gets_further(watch: TimedWatch) -> None:
    watch.show("rollout")
    for _ in range(5):
        assert watch.after(9, STOP) is None
        watch.alive()
    assert watch.after(40, STOP) == "stopped"


def test_the_deadline_of_silence_ends_what_a_stop_would_still_wait_for(watch: TimedWatch) -> None:
    watch.show("rollout")
    watch.clock.now += 20
    watch.show("update")
    assert watch.after(0, STOP) is None
    assert watch.after(51, STOP) == "retried"  # it goes on from the last checkpoint, in a fresh process
    assert "GROUPSCOPE_SILENCE_SECONDS" in watch.says


def test_a_second_stop_and_a_second_signal_wait_for_nothing(watch: TimedWatch) -> None:
    for phase in ("starting", "loading the task", "update", "checkpoint", None):
        watch.show(phase)
        assert watch.after(0, STOP_AT_ONCE) == "stopped"
        assert watch.after(0, SHUTDOWN_AT_ONCE) == "released"


@pytest.mark.parametrize(
    ("asked", "why"), [(SHUTDOWN, "Asked to end"), (LOST, "Lost its lease")], ids=["a shutdown", "a lost lease"]
)
def test_a_thread_that_heeds_nothing_gives_the_run_back_and_is_replaced(
    watch: TimedWatch, asked: Asked, why: str
) -> None:
    watch.show("rollout")
    assert watch.after(0, asked) is None
    assert watch.after(10.1, asked) == "released"
    assert watch.says == f"{why}: did not answer in the phase 'rollout' for 10 s; the worker's process was ended."


def test_each_phase_of_loading_has_a_deadline_of_its_own_and_fails_the_run_for_good(watch: TimedWatch) -> None:
    for phase in ("loading the task", "loading the model"):
        watch.show(phase)
        assert watch.after(100, NOTHING) is None
    assert watch.after(1, NOTHING) == "failed"
    assert "No end in the phase 'loading the model' after 100 s" in watch.says
    assert "GROUPSCOPE_LOADING_SECONDS" in watch.says


def test_a_checkpoint_is_written_to_its_end_although_a_stop_waits(watch: TimedWatch) -> None:
    watch.show("checkpoint")
    assert watch.after(0, STOP) is None
    assert watch.after(49, STOP) is None
    assert watch.after(0, SHUTDOWN) is None


def test_an_attempt_that_was_left_ends_no_process() -> None:
    ended, lock = threading.Event(), threading.Lock()
    watch = Watch(1, PATIENCE, lambda: STOP_AT_ONCE, lambda verdict: ended.set(), lock)
    with lock:
        watch.__enter__()
        assert not ended.wait(0.5)  # it has come to its verdict, and waits for the lock
        watch._left.set()  # as leaving does, which had the lock first
    watch._thread.join(10)
    assert not watch._thread.is_alive()
    assert not ended.is_set()
