"""A real backend on a loopback port, in a thread of the test's process."""

import socket
import threading
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from backend.app import create_app
from backend.clock import Clock
from backend.contract.client import Client
from backend.services import Services
from backend.settings import Settings

TOKEN = "test-token"


class SteppedClock(Clock):
    """A clock that tests set forward; it stands still otherwise."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def seconds(self) -> float:
        return self.now


@dataclass
class Backend:
    """A serving backend."""

    url: str
    home: Path
    services: Services
    client: Client
    clock: SteppedClock


class Serving:
    """Runs the application in a thread until closed."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.app = create_app(settings, clock)
        # asyncio turns Nagle's algorithm off only where the protocol is named; else each answer takes 40 ms
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(128)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(self.app, log_level="error", access_log=False, timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
