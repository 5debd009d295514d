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
