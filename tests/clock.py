"""A clock for tests, in the place of `time.monotonic`."""

from collections.abc import Callable
from types import ModuleType

import pytest


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def clock_of(module: ModuleType) -> Callable[[pytest.MonkeyPatch], Clock]:
    """The fixture that gives a module this clock."""

    def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
        monkeypatch.setattr(module, "monotonic", found := Clock())
        return found

    return clock
