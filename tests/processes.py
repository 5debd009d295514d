"""Real backend and worker processes, to be killed, stopped and started again."""

import os
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import zygote

from backend.contract.client import ApiError, Client, Unreachable
from backend.contract.records import Run, RunError, Series
from backend.supervisor import dashboard_command

TOKEN = "a-token-of-the-fault-tests"
PATIENCE = 240.0


_watched: list[Callable[[], str | None]] = []


def watch(death: Callable[[], str | None]) -> Callable[[], None]:
    """Whatever a test waits for, until what this returns is called, fails with the words of `death` as soon as it has some: what it
    looks at has died."""
    _watched.append(death)

    def forget() -> None:
        if death in _watched:
            _watched.remove(death)

    return forget


def death_of(process: subprocess.Popen[bytes], log: Path) -> str | None:
    """How a process ended by itself, with the end of its log; None while it runs, and if somebody has waited for its end."""
    if process.returncode is not None or process.poll() is None:
        return None
    command = " ".join(map(str, process.args)) if isinstance(process.args, list) else process.args
    return f"{command} ended by itself with {process.returncode}; its log ends so:\n{log.read_text(errors='replace')[-4000:]}"


def wait_until(
    condition: Callable[[], object], what: str, patience: float = PATIENCE, *, longest_pause: float = 0.2
) -> None:
    """Poll until it holds; the test fails, with the reason, at the deadline, and at once if a process has died that it may wait for.

    A question costs 5 ms of processor time, the backend's and ours: who has waited long is asked less often.
    """
    began = time.monotonic()
    deadline = began + patience
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except (Unreachable, ApiError, httpx.TransportError):
            pass  # a process that is down at this moment is part of these tests
        for death in filter(None, (one() for one in _watched)):
            raise AssertionError(f"waiting for “{what}”: {death}")
        time.sleep(min(longest_pause, max(0.02, (time.monotonic() - began) / 10)))
    raise AssertionError(f"not within {patience} s: {what}")


@contextmanager
def standing_still(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """It does nothing meanwhile, and answers nobody."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def kill(process: subprocess.Popen[bytes]) -> None:
    """It is gone when this returns."""
    process.kill()
    process.wait()


def error_of(run: Run) -> RunError:
    """Why it ended."""
    assert run.error is not None
    return run.error


def assert_failed(run: Run, code: str, *words: str) -> str:
    """It failed for this reason, and its message has these words. Returns the message."""
    error = error_of(run)
    assert (run.status, error.code, [one for one in words if one not in error.message]) == ("failed", code, []), error
    return error.message


_held: list[socket.socket] = []


def free_port() -> int:
    """A port on which nobody listens, and which nobody who asks the system for any port is given.

    It stays bound here without listening. Servers set SO_REUSEADDR, and can be bound and listen beside that.
    """
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    # not before: with ip_autobind_reuse one that is held would be given
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _held.append(held)
    return int(held.getsockname()[1])


class Site:
    """One home directory, with a backend on a fixed port, any number of workers, and dashboards."""

    def __init__(self, home: Path, *, lease_seconds: float = 2.0, **settings: object) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = Client(self.url, TOKEN, timeout=10)
        self.bearer = {"Authorization": f"Bearer {TOKEN}"}
        self._environment = os.environ | {
            "GROUPSCOPE_HOME": str(home),
            "GROUPSCOPE_TOKEN": TOKEN,
            "GROUPSCOPE_BACKEND_URL": self.url,
            "GROUPSCOPE_BACKEND_PORT": str(self.port),
            "GROUPSCOPE_LEASE_SECONDS": str(lease_seconds),
            "GROUPSCOPE_SWEEP_SECONDS": "0.3",
            **zygote.OF_SITES,
            **{f"GROUPSCOPE_{name.upper()}": str(value) for name, value in settings.items()},
        }
        self._started: list[subprocess.Popen[bytes]] = []
        self._forget: list[Callable[[], None]] = []
        self.dashboards: list[subprocess.Popen[bytes]] = []

    def _start(
        self, like: str, *command: str, home: Path | None = None, files: int | None = None, **environment: str
    ) -> subprocess.Popen[bytes]:
        environment = self._environment | ({"GROUPSCOPE_HOME": str(home)} if home else {}) | environment
        log = self.home / f"{command[0]}.log"
        process = zygote.start(like, command, environment, log, files)
        self._forget.append(watch(lambda: death_of(process, log)))
        self._started.append(process)
        return process

    def start_backend(
        self, *, files: int | None = None, module: str = "backend.app", **environment: str
    ) -> subprocess.Popen[bytes]:
        """Start it and do not wait until it answers; `files` limits how many files it may open, for good."""
        return self._start("backend.app", module, files=files, **environment)

    def backend(
        self, *, files: int | None = None, module: str = "backend.app", **environment: str
    ) -> subprocess.Popen[bytes]:
        process = self.start_backend(files=files, module=module, **environment)
        wait_until(self.client.healthy, "the backend answers")
        return process

    def worker(
        self, home: Path | None = None, *, module: str = "worker.main", backend: str | None = None, **environment: str
    ) -> subprocess.Popen[bytes]:
        return self._start("worker.main", module, "--backend", backend or self.url, home=home, **environment)

    def held_worker(self, *steps: int, home: Path | None = None, **environment: str) -> subprocess.Popen[bytes]:
        """A worker that waits before each of these steps of a run's first attempt until `go_on` names it."""
        return self.worker(
            home, module="tests.faults.worker_held", TEST_HELD_AT=" ".join(map(str, steps)), **environment
        )

    def wait_for_held(self, step: int, home: Path | None = None) -> None:
        wait_until((home or self.home).joinpath(f"held at {step}").exists, f"the worker has come to step {step}")

    def go_on(self, step: int, until: int | None = None, home: Path | None = None) -> None:
        """Let the held worker do this step, and wait until it has come to another."""
        (home or self.home).joinpath(f"go on {step}").touch()
        if until is not None:
            self.wait_for_held(until, home)

    def dashboard(self) -> str:
        """Start the dashboard; its address once it answers."""
        port = free_port()
        self.dashboards.append(self._start("dashboard.server", *dashboard_command(port)[2:]))
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: httpx.get(f"{url}/_stcore/health").is_success, "the dashboard answers")
        return url

    def wait_for_step(self, run_id: int, step: int) -> Run:
        """As it passes: a run in a hurry makes a step in a twentieth of a second."""
        what = f"run {run_id} reaches step {step}"
        wait_until(lambda: self.client.run(run_id).progress.step >= step, what, longest_pause=0.05)
        return self.client.run(run_id)

    def wait_for_end(self, run_id: int, patience: float = PATIENCE) -> Run:
        over = {"finished", "failed", "stopped", "paused"}
        wait_until(lambda: self.client.run(run_id).status in over, f"run {run_id} ends", patience)
        return self.client.run(run_id)

    def run_to_end(self, config: dict[str, object], patience: float = PATIENCE) -> Run:
        """A run of this configuration, once it has ended."""
        return self.wait_for_end(self.client.create_run(config).id, patience)

    def reward(self, run_id: int) -> Series:
        """The metric that every step has."""
        return self.client.metrics(run_id, names=["reward"]).series["reward"]

    def said(self, run_id: int) -> str:
        """The run's log."""
        return "\n".join(line.message for line in self.client.logs(run_id, limit=1000).items)

    def intact(self) -> bool:
        """Whether the database is."""
        with closing(sqlite3.connect(f"file:{self.home / 'groupscope.db'}?mode=ro", uri=True)) as database:
            return bool(database.execute("PRAGMA integrity_check").fetchone() == ("ok",))

    def __enter__(self) -> "Site":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        while self._forget:
            self._forget.pop()()
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self.client.close()


def ranks_of(worker: int) -> list[int]:
    """The processes of the run that a worker has, or the one that it started, in the order of their start."""
    found, parents = dict[int, int](), dict[int, int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, fields = stat.read_text().rpartition(")")
            command = name + (stat.parent / "cmdline").read_text()
        except (OSError, ValueError):
            continue
        parents[int(stat.parent.name)] = parent = int(fields.split()[1])
        if "spawn_main" in command:
            found[int(stat.parent.name)] = parent
    return sorted(process for process, parent in found.items() if worker in (parent, parents.get(parent)))


# Completions are cut when an answer has begun, which takes three times as many tokens; what they begin with differs all the same.
BEGINNINGS: dict[str, object] = {"name": "begins", "kind": "pattern", "patterns": ["x", "-", "1", "3", "5"]}


def tiny_run(steps: int, *, every: int = 3, seed: int = 0, **changes: object) -> dict[str, object]:
    """A configuration whose steps take a fraction of a second."""
    return {
        "kind": "grpo",
        "sampling": {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 6},
        "rewards": {"functions": [BEGINNINGS]},
        "budget": {"steps": steps, "eval_every": 0, "checkpoint_every": every, "seed": seed},
    } | changes


def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path / "home") as one:
        yield one
