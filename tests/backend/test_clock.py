"""Leases hang on a clock that nobody can set."""

import time
from datetime import UTC

import pytest

from backend.clock import Clock


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
    clock = Clock(slack=2.0)
    real = time.monotonic
    before = clock.seconds()
    monkeypatch.setattr(time, "monotonic", lambda: real() + 600)
    assert clock.seconds() == pytest.approx(before + 2, abs=0.5)
    clock.pulse()  # the stall is over: the clock goes on from there
    monkeypatch.setattr(time, "monotonic", lambda: real() + 601)
    assert clock.seconds() == pytest.approx(before + 3, abs=0.5)
