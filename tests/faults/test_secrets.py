"""The token stands in no log, no database, no command line and no answer, whatever goes wrong and however much is written."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest
import zygote
from processes import death_of, free_port, kill, tiny_run, wait_until, watch

from backend.contract.client import Client

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

TOKEN = "canary-7f3a9c-of-the-token"
WRONG = "canary-9b1d4e-of-a-wrong-token"
CANARIES = (TOKEN.encode(), WRONG.encode())
# Whatever a library would write, it writes: no logger can be set to less.
DEBUG = """
import logging
logging.root.level = logging.DEBUG
logging.Logger.setLevel = lambda self, level: None
"""


def descendants(process: int) -> Iterator[int]:
    """What it has started, and what that has: as the kernel keeps it, which looks through no other process."""
    for listed in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, listed.read_text().split()):
                yield child
                yield from descendants(child)


class Installation:
    """`groupscope up` under a token of ours, writing all it can; and every command line that was seen while it ran."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        (folder / "sitecustomize.py").write_text(DEBUG)
        shutil.copy(Path(__file__).with_name("telling_rewards.py"), folder)
        self.token_file = folder / "given" / "token"
        self.token_file.parent.mkdir()
        self.token_file.write_text(TOKEN)
        self.port, dashboard = free_port(), free_port()
        self.url, self.dashboard = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{dashboard}"
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("GROUPSCOPE_")} | {
            "PYTHONPATH": str(folder),
            "GROUPSCOPE_HOME": str(self.home),
            "GROUPSCOPE_BACKEND_URL": self.url,
            "GROUPSCOPE_LEASE_SECONDS": "3",
            "GROUPSCOPE_REWARD_FUNCTIONS": "telling_rewards:tell",
            "GROUPSCOPE_REWARD_PATH": str(folder),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        self.command_lines: set[str] = set()
        ports = ["--backend-port", str(self.port), "--port", str(dashboard)]
        self.up = self.start("up", "--no-browser", "--no-quickstart", *ports, GROUPSCOPE_TOKEN=TOKEN)
        watch(lambda: death_of(self.up, self.folder / "printed.log"))
        self.client = Client(self.url, TOKEN)
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._note_command_lines)
        self._watch.start()
        wait_until(lambda: httpx.get(f"{self.dashboard}/_stcore/health").is_success, "everything is up")

    def start(self, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        """A command of ours; what it prints is kept beside the home."""
        with (self.folder / "printed.log").open("ab") as printed:
            return subprocess.Popen(
                [sys.executable, "-m", "backend.cli", *command],
                env=self.environment | environment,
                stdout=printed,
                stderr=printed,
            )

    def fork(self, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        """Another program of ours, without the seconds of its imports, writing as much to the same place."""
        ours = {name: value for name, value in self.environment.items() if name.startswith("GROUPSCOPE_")}
        others = {name: value for name, value in os.environ.items() if not name.startswith("GROUPSCOPE_")}
        module = "tests.faults.command_at_debug"
        all_of_it = others | zygote.OF_SITES | ours | environment
        return zygote.start("worker.main", [module, *command], all_of_it, self.folder / "printed.log")

    def child(self, module: str) -> psutil.Process:
        """The process of `up` that runs this module."""
        return next(one for one in psutil.Process(self.up.pid).children() if module in one.cmdline())

    def _note_command_lines(self) -> None:
        while not self._over.wait(0.05):
            for process in descendants(os.getpid()):
                with suppress(OSError):
                    line = Path(f"/proc/{process}/cmdline").read_text(errors="replace")
                    self.command_lines.add(line.replace("\0", " ").strip())

    def close(self) -> None:
        self._over.set()
        self._watch.join()
        self.client.close()
        self.up.send_signal(signal.SIGINT)
        try:
            self.up.wait(60)
        finally:
            kill(self.up)


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    one = Installation(tmp_path)
    yield one
    one.close()


def ask(url: str, method: str, path: str, **sent: object) -> bytes:
    """All of the answer."""
    answer = httpx.request(method, url + path, timeout=30, **sent)  # type: ignore[arg-type]
    return f"{answer.status_code} {answer.url} {answer.headers}".encode() + answer.content


def strangers(one: Installation, run_id: int) -> list[bytes]:
    """Answers to wrong tokens, wrong schemes, unreadable requests, unknown names, and to what breaks in the middle."""
    answers = []
    bearers = (f"Bearer {WRONG}", f"bearer  {TOKEN}x", f"Bearer {TOKEN} {TOKEN}")
    for scheme in (*bearers, f"Basic {WRONG}", WRONG, f"Token {TOKEN}"):
        for method in ("GET", "HEAD", "OPTIONS", "POST", "DELETE"):
            for path in ("/api/v1/runs", f"/api/v1/runs/{run_id}/events", "/metrics", "/nothing", "//healthz"):
                answers.append(ask(one.url, method, path, headers={"Authorization": scheme}))
    known = {"Authorization": f"Bearer {TOKEN}"}
    for sent in (
        {"headers": {**known, "Host": "evil.example"}},
        {"headers": {**known, "Origin": "http://evil.example"}},
        {"headers": {**known, "Content-Type": "text/plain"}, "content": b"{}"},
        {"headers": known, "content": b"{" * 5000},
        {"headers": known, "json": {"config": {"kind": "nothing", "seed": "1e999"}}},
        {"headers": known, "json": []},
    ):
        for path in ("/api/v1/runs", f"/api/v1/runs/{run_id}/clone", f"/api/v1/worker/runs/{run_id}/report"):
            try:
                answers.append(ask(one.url, "POST", path, **sent))
            except httpx.RemoteProtocolError:
                answers.append(b"closed")
    for path in ("/", "/run?id=1", "/downloads/x/1/report", "/_stcore/host-config", "/_stcore/metrics", "/nothing"):
        answers += [ask(one.dashboard, "GET", path), ask(one.dashboard, "GET", path, headers={"Host": "evil.example"})]
    return answers


def test_the_token_stands_nowhere_after_everything_went_wrong(installation: Installation) -> None:
    one = installation
    telling = {"name": "mine", "kind": "python", "function": "telling_rewards:tell", "weight": 1.0}
    assert one.client.runs().items == []  # as --no-quickstart asks
    failed = one.client.create_run(tiny_run(1, every=0, rewards={"functions": [telling]}))
    wait_until(lambda: one.client.run(failed.id).status == "failed", "the reward told all it knows")
    answers = strangers(one, failed.id)
    long = one.client.create_run(tiny_run(2000, every=2))
    wait_until(lambda: one.client.run(long.id).progress.step >= 2, "the other run trains")
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.stream("GET", f"{one.url}/api/v1/runs/{long.id}/events", headers=bearer, timeout=60) as stream:
        assert next(stream.iter_lines()) == ": listening"
        doomed = [one.child("backend.app"), one.child("worker.main")]
        for process in doomed:
            process.kill()
    wait_until(one.client.healthy, "the backend is back")
    wait_until(lambda: one.client.run(long.id).attempt >= 2, "so is the worker")
    one.client.command(long.id, "stop")
    to_file = ["-o", str(one.folder / "run.jsonl"), "--token-file", str(one.token_file)]
    commands = [
        one.start("runs", "--token-file", str(one.token_file)),
        one.fork("backend.cli", "runs", GROUPSCOPE_TOKEN=WRONG),
        one.fork("backend.cli", "doctor", GROUPSCOPE_TOKEN=TOKEN),
        one.fork("backend.cli", "export", str(failed.id), *to_file),
        one.fork("worker.main", GROUPSCOPE_TOKEN=WRONG, GROUPSCOPE_HOME=str(one.folder / "another")),
    ]
    assert [command.wait(120) for command in commands[:2]] == [0, 1]
    assert [command.wait(120) for command in commands[2:4]][1] == 0
    wait_until(lambda: b"refused to give work" in (one.folder / "printed.log").read_bytes(), "the worker is refused")
    kill(commands[4])
    answers += [page.content for page in pages(one, failed.id)]
    one.close()

    assert [answer for answer in answers if has_canary(answer)] == []
    assert len(one.command_lines) > 5
    assert [line for line in one.command_lines if has_canary(line.encode())] == []
    files = [path for path in one.folder.rglob("*") if path.is_file() and path != one.token_file]
    names = {path.name for path in files}
    assert names >= {"backend.log", "worker.log", "dashboard.log", "groupscope.db", "printed.log", "run.jsonl"}
    # it was written in full
    assert sum(b" DEBUG " in path.read_bytes() for path in files if path.suffix == ".log") >= 2
    assert [str(path) for path in files if has_canary(path.read_bytes())] == []


def has_canary(content: bytes) -> bool:
    return any(canary in content for canary in CANARIES)


def pages(one: Installation, run_id: int) -> list[httpx.Response]:
    """All that the backend says of a run whose reward told what it knew, and what it says to Prometheus."""
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    run = f"/api/v1/runs/{run_id}"
    paths = (run, f"{run}/logs", f"{run}/health", f"{run}/export", f"{run}/groups", "/metrics", "/api/v1/workers")
    answers = [httpx.get(one.url + path, headers=bearer, timeout=30) for path in paths]
    assert all(answer.status_code == 200 for answer in answers)
    assert "telling_rewards" in answers[3].text
    return answers
