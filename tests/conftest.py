"""What tests of several parts share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from serving import TOKEN, Backend, Serving, SteppedClock
from skips import pytest_sessionfinish, pytest_terminal_summary

from backend.contract.client import Client
from backend.settings import Settings

__all__ = ["pytest_sessionfinish", "pytest_terminal_summary"]


@pytest.fixture
def start_backend(tmp_path: Path) -> Iterator[Callable[..., Backend]]:
    """Starts backends on one home; each is closed at the end, or earlier by `close`."""
    serving: list[Serving] = []
    clients: list[Client] = []

    def start(**settings: object) -> Backend:
        clock = SteppedClock()
        values = {"home": tmp_path / "home", "token": TOKEN, "sweep_seconds": 3600.0} | settings
        one = Serving(Settings.model_validate(values), clock)
        client = Client(one.url, TOKEN)
        serving.append(one)
        clients.append(client)
        return Backend(one.url, tmp_path / "home", one.app.state.services, client, clock)

    yield start
    for client in clients:
        client.close()
    for one in serving:
        one.close()


@pytest.fixture
def backend(start_backend: Callable[..., Backend]) -> Backend:
    """One real backend."""
    return start_backend()
