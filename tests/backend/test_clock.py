"""Leases hang on a clock that nobody can set."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from acting import began
from serving import Backend, SteppedClock

from backend.clock import Clock
from backend.contract.records import Progress


def test_setting_the_wall_clock_moves_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    before = clock.seconds()
    real = time.time
    for jump in (-86_400.0, 86_400.0):
        monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
        assert 0 <= clock.seconds() - before < 60
    assert abs(before - real()) < 60
    assert clock.stamp().tzinfo is UTC


def test_a_lease_counts_no_time_in_which_no_heartbeat_could_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    clock = Clock(slack=2.0)
    before = clock.seconds()
    monkeypatch.setattr(time, "monotonic", lambda: now + 600)
    assert clock.seconds() == pytest.approx(before + 2)
    clock.pulse()  # the stall is over: the clock goes on from there
    monkeypatch.setattr(time, "monotonic", lambda: now + 601)
    assert clock.seconds() == pytest.approx(before + 3)


class Yesterday(SteppedClock):
    """As after a start on a machine whose wall clock was set back by a day."""

    def __init__(self) -> None:
        super().__init__()
        self.now -= 86_400

    def stamp(self) -> datetime:
        return super().stamp() - timedelta(days=1)


def test_after_a_wall_clock_was_set_back_the_dead_and_the_hanging_are_noticed_and_no_time_ends_before_it_began(
    start_backend: Callable[..., Backend],
) -> None:
    first = start_backend()
    actor = began(first.client)
    for step in range(3):
        actor.report(step, metrics={"step_time": 1.0, "time/rollout": 1.0})
    sampling = Progress(step=3, phase="rollout", done=0, total=1)
    actor.beat(sampling)
    clock = Yesterday()
    second = start_backend(clock=clock)
    second.client.secrets |= first.client.secrets
    actor.client = second.client
    clock.now += 31
    [worker] = second.client.workers()
    assert not worker.alive
    clock.now += 3600
    actor.beat(sampling)
    assert "phase_open" in [hint.code for hint in second.client.health(actor.run_id).items]
    for act in (actor.beat, actor.finish):
        act()
        [held] = second.client.worker_use()
        assert held.until >= held.since
    ended = second.client.run(actor.run_id)
    assert ended.started_at is not None
    assert ended.finished_at is not None
    assert ended.finished_at >= ended.started_at
