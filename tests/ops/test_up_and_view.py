"""`groupscope up` and `groupscope view` as a person uses them: their processes, one Ctrl-C, and nothing lost, mixed or left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree

import pytest
from importing import FOREIGN
from processes import free_port, wait_until
from serving import Backends

from backend.contract.client import Client
from backend.up import submit_quickstart, view_home

pytestmark = pytest.mark.slow

GROUPSCOPE = [sys.executable, "-m", "backend.cli"]


class Command:
    """A running `groupscope up` or `view`, and what it has said so far."""

    def __init__(self, log: Path, *options: str, **environment: str) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*GROUPSCOPE, *options, "--no-browser"],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | environment,
            )
        self.wait_for(lambda: "open http://" in self.said)

    @property
    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, condition: Callable[[], object]) -> None:
        def held() -> object:
            assert self.process.poll() is None, self.said
            return condition()

        wait_until(held, "what the command does", 120)

    def children(self) -> dict[str, int]:
        """Process ids by what runs in them: python -m <module>."""
        pids = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in pids}
        return {command[2]: pid for pid, command in commands.items()}

    def ends(self) -> None:
        """One interrupt ends it and all of its processes."""
        children = self.children()
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in children.values())


@contextmanager
def running(log: Path, *options: str, **environment: str) -> Iterator[Command]:
    one = Command(log, *options, **environment)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait()


@pytest.mark.thorough
def test_three_processes_come_up_alone_in_their_home_and_one_interrupt_stops_them_without_losing_the_run(
    tmp_path: Path,
) -> None:
    home, port, backend_port = tmp_path / "home", str(free_port()), str(free_port())
    options = ("up", "--home", str(home), "--port", port, "--backend-port", backend_port)
    with running(tmp_path / "log", *options, OMP_NUM_THREADS="1") as first:
        with Client(f"http://127.0.0.1:{backend_port}", (home / "token").read_text()) as client:
            children = first.children()
            assert set(children) == {"backend.app", "worker.main", "dashboard.server"}
            [run] = client.runs().items
            assert (run.name, run.config["recipe"]) == ("quickstart", "grpo")
            first.wait_for(lambda: client.run(run.id).status == "running")

        ports = ["--port", str(free_port()), "--backend-port", str(free_port())]
        command = [*GROUPSCOPE, "up", "--no-browser", "--home", str(home), *ports]
        second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert second.returncode == 1
        assert f"already runs in {home}" in second.stderr
        assert f"http://127.0.0.1:{port}" in second.stderr

        os.kill(children["worker.main"], signal.SIGKILL)
        first.wait_for(lambda: "the worker was killed by SIGKILL" in first.said and "is started again" in first.said)
        first.wait_for(lambda: "worker.main" in first.children())
        first.ends()
        assert "stopped" in first.said

    with Backends(home) as backends:  # as the next start finds it
        client = backends.start().client
        said: list[str] = []
        submit_quickstart(client, said.append)
        assert said == []
        assert [one.name for one in client.runs().items] == ["quickstart"]


@pytest.mark.thorough
def test_a_folder_is_shown_followed_and_shown_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    folder = copytree(FOREIGN / "verl" / "legacy", tmp_path / "run")
    third = (folder / "3.jsonl").rename(tmp_path / "later")
    home = view_home(folder)
    assert home.parent == tmp_path / "data" / "groupscope" / "view"
    for time in ("first", "second"):
        database = "sqlite:////nowhere/at/all.db"
        with running(tmp_path / f"{time}.log", "view", str(folder), GROUPSCOPE_DATABASE_URL=database) as view:
            children = view.children()
            assert set(children) == {"backend.app", "backend.cli", "dashboard.server"}
            # the port of its backend stands in the environment of its importer
            importer = Path(f"/proc/{children['backend.cli']}/environ").read_text().split("\0")
            [url] = [line.partition("=")[2] for line in importer if line.startswith("GROUPSCOPE_BACKEND_URL=")]
            with Client(url, (home / "token").read_text().strip()) as client:
                assert "/run?id=1   (Ctrl-C" in view.said
                view.wait_for(lambda: client.run(1).progress.step >= 2)
                if third.exists():
                    third.rename(folder / "3.jsonl")
                view.wait_for(lambda: client.run(1).progress.step >= 3)
            view.ends()
            assert "`groupscope view` continues where it stopped" in view.said
    assert not (tmp_path / ".groupscope").exists()


@pytest.mark.parametrize("command", [["view", "."], ["up"]], ids=lambda command: command[0])
def test_without_the_extras_the_command_says_which_to_install(command: list[str]) -> None:
    code = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'uvicorn' else find(name, *rest)\n"
        f"from backend.cli import app\napp({command!r})"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = "groupscope: the backend is not installed here: pip install 'groupscope[backend]'\n"
    assert (ended.returncode, ended.stderr) == (1, expected)
