"""`groupscope up`: the three processes on one machine, behind one Ctrl-C; and `groupscope view`, which has no worker and imports a folder."""

import os
import signal
import socket
import sys
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from backend.auth import token_of
from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.home import CannotStart, alone, make_private
from backend.contract.recipes import QUICKSTART, RECIPES
from backend.settings import Settings
from backend.supervisor import Program, Supervisor, dashboard_command

# seconds while the backend starts: an upgrade of the database that is broken off would only begin anew
SAID_EVERY = 30.0
IMPORT_PATIENCE = 10.0  # seconds until a page is opened though nothing is imported yet
DASHBOARD_PATIENCE = 60.0  # seconds: imports on a slow disk
RELEASE = 45.0  # seconds that the worker has to put its run back into the queue


@dataclass(frozen=True)
class Up:
    """What the person asked for on the command line."""

    settings: Settings
    port: int
    browser: bool
    quickstart: bool
    viewed: Path | None = None  # a folder of another trainer's, which is imported: then no worker is started

    @property
    def verb(self) -> str:
        """The command that the person typed."""
        return "up" if self.viewed is None else "view"

    @property
    def home(self) -> Path:
        """The data directory, absolute, so that every process means the same one."""
        return self.settings.home.resolve()

    def already_there(self, who: str) -> str:
        """What is said if another process has the home."""
        return (
            f"Groupscope already runs in {self.home}: {who}. Open that, stop it with Ctrl-C where it runs, or start another "
            "one with --home, --port and --backend-port"
        )

    @property
    def backend_url(self) -> str:
        """Where worker and dashboard find the backend."""
        return f"http://127.0.0.1:{self.settings.backend_port}"

    @property
    def address(self) -> str:
        """What the person opens."""
        return f"http://127.0.0.1:{self.port}"


def run(up: Up, say: Callable[[str], None]) -> None:
    """Start everything, stay until Ctrl-C or SIGTERM, and stop everything. Raises CannotStart."""
    make_private(up.home)
    logs = up.home / "logs"
    logs.mkdir(exist_ok=True)
    with alone(up.home / "up.lock", f"process {os.getpid()}, {up.address}", up.already_there):
        _require_free(up.settings.backend_port, "--backend-port")
        _require_free(up.port, "--port")
        supervisor = Supervisor(logs, say)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, supervisor.on_signal)
        try:
            _start(up, supervisor, say)
            supervisor.watch()
        finally:
            what = "the worker puts its run back into the queue (Ctrl-C again does not wait)"
            say("stopping" if up.viewed else f"stopping: {what}")
            supervisor.stop()
            say(f"stopped; `groupscope {up.verb}` continues where it stopped")


def _start(up: Up, supervisor: Supervisor, say: Callable[[str], None]) -> None:
    token = token_of(up.settings)
    # the token travels here, because every user of a machine can read its command lines
    environment = dict(os.environ)
    if up.viewed is not None:
        environment.pop("GROUPSCOPE_DATABASE_URL", None)  # it is not to be mixed with what lies there
        environment["GROUPSCOPE_VIEWING"] = "true"
    environment |= {
        "GROUPSCOPE_HOME": str(up.home),
        "GROUPSCOPE_BACKEND_URL": up.backend_url,
        "GROUPSCOPE_BACKEND_PORT": str(up.settings.backend_port),
        "GROUPSCOPE_TOKEN": token,
        "PYTHONUNBUFFERED": "1",
    }
    say(f"Groupscope in {up.home} is starting")
    backend = supervisor.start(Program("backend", [sys.executable, "-m", "backend.app"], environment, grace=10))
    with Client(up.backend_url, token, timeout=5) as client:
        # a backend that ends before it has answered once ends again
        while not supervisor.wait_until(lambda: backend.pid is None or client.healthy(), SAID_EVERY):
            if supervisor.stopping:
                return
            say(f"the backend is still starting, as it does on a large database after an upgrade: {backend.log}")
        if supervisor.stopping:
            return
        if backend.pid is None:
            text = f"the backend cannot start. Its last line: {backend.last_words()}\nall of it: {backend.log}"
            raise CannotStart(text)
        supervisor.start(Program("dashboard", dashboard_command(up.port), environment, grace=5))
        if up.viewed is not None:
            command = [sys.executable, "-m", "backend.cli", "import", str(up.viewed), "--follow"]
            supervisor.start(Program("import", command, environment, grace=10))
        else:
            supervisor.start(Program("worker", [sys.executable, "-m", "worker.main"], environment, grace=RELEASE))
        if up.quickstart:
            submit_quickstart(client, say)
        if supervisor.wait_until(lambda: _answers(f"{up.address}/_stcore/health"), DASHBOARD_PATIENCE):
            page = up.address
            if up.viewed is not None:  # the run that is imported, or the list if there are several, or none yet
                supervisor.wait_until(lambda: bool(client.runs(kind="recorded", limit=1).items), IMPORT_PATIENCE)
                imported = client.runs(kind="recorded", limit=2).items
                page += f"/run?id={imported[0].id}" if len(imported) == 1 else ""
            say(f"open {page}   (Ctrl-C stops everything; runs go on when you start again)")
            if up.browser:
                webbrowser.open(page)


def view_home(viewed: Path) -> Path:
    """Where `groupscope view` keeps what it shows of a folder: apart from the home of `groupscope up`, and from other folders."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    resolved = viewed.resolve()
    return data / "groupscope" / "view" / f"{resolved.name}-{sha256(os.fsencode(resolved)).hexdigest()[:8]}"


def free_port(usual: int) -> int:
    """The usual port, or another if somebody has it."""
    for port in (usual, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return int(probe.getsockname()[1])
    raise CannotStart("no port of this machine is free")


def submit_quickstart(client: Client, say: Callable[[str], None]) -> None:
    """Queue the first run of an empty installation, to have something to watch."""
    try:
        if client.runs(limit=1).items:
            return
        recipe = next(card for card in RECIPES if card.id == QUICKSTART)
        run = client.create_run(recipe.config, name="quickstart", idempotency_key="quickstart")
        say(f"run {run.id} (quickstart, recipe {QUICKSTART}) is queued")
    except (ApiError, Unreachable) as error:
        say(f"the quickstart was not started: {error}")


def _require_free(port: int, option: str) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            text = f"port {port} cannot be used ({error.strerror}): stop the program that has it, or choose another with {option}"
            raise CannotStart(text) from None


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2) as response:  # noqa: S310 — our own http address
            return bool(response.status == 200)
    except (URLError, OSError):
        return False
