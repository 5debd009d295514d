"""A real backend on a loopback port, in a thread of the test's process."""

import socket
import threading
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import uvicorn
from processes import watch

from backend.app import create_app, open_services
from backend.clock import Clock
from backend.contract.client import Client
from backend.services import Services
from backend.settings import Settings

TOKEN = "test-token"


class SteppedClock(Clock):
    """A clock that tests set forward; it stands still otherwise."""

    def __init__(self) -> None:
        super().__init__(slack=3600.0)
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
    http: httpx.Client  # with the token, for what the typed client would never send
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
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        self._forget = watch(lambda: None if self._thread.is_alive() else "the backend in this process ended by itself")

    def _serve(self) -> None:
        # a server that could not start has said why, and takes no connection
        with suppress(SystemExit), closing(self._socket):
            self._server.run(sockets=[self._socket])

    def close(self) -> None:
        """Told to end, not waited for: it takes two tenths of a second, longer than most tests, and closes its own socket."""
        self._forget()
        self._server.should_exit = True


def one_for_all(shared_backend: Backend) -> Backend:
    """The fixture `backend` of a module whose tests leave each other alone."""
    return shared_backend


@cache
def empty_database() -> bytes:
    """As a first start makes it; tests of the schema have databases of their own."""
    with TemporaryDirectory() as folder:
        open_services(Settings(home=Path(folder)), Clock()).database.close()
        return (Path(folder) / "groupscope.db").read_bytes()


class Backends:
    """Backends on one home; all are closed on leaving."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._closing = ExitStack()

    def __enter__(self) -> "Backends":
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def start(self, *, clock: SteppedClock | None = None, **settings: object) -> Backend:
        """One more, with the settings given."""
        clock = clock or SteppedClock()
        database = self._home / "groupscope.db"
        if not database.exists():
            self._home.mkdir(parents=True, exist_ok=True)
            database.write_bytes(empty_database())
        values = {"home": self._home, "token": TOKEN, "sweep_seconds": 3600.0} | settings
        serving = Serving(Settings.model_validate(values), clock)
        self._closing.callback(serving.close)
        client = self._closing.enter_context(Client(serving.url, TOKEN))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        http = self._closing.enter_context(httpx.Client(base_url=serving.url, headers=headers, timeout=60))
        return Backend(serving.url, self._home, serving.app.state.services, client, http, clock)
