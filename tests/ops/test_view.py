"""`groupscope view` as a person uses it: one command on another trainer's folder, a page, and nothing mixed with a home or left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest
from importing import FOREIGN
from processes import wait_until

from backend.contract.client import Client
from backend.up import view_home

pytestmark = pytest.mark.slow


class View:
    """A running `groupscope view`."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "backend.cli", "view", str(folder), "--no-browser"],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | {"GROUPSCOPE_DATABASE_URL": "sqlite:////nowhere/at/all.db"},
            )
        self.wait_for(lambda: "open http://" in self.said)

    @property
    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, condition: Callable[[], object]) -> None:
        def held() -> object:
            assert self.process.poll() is None, self.said
            return condition()

        wait_until(held, "view", 120)

    def children(self) -> dict[str, int]:
        """Process ids by what runs in them: python -m <module>."""
        pids = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in pids}
        return {command[2]: pid for pid, command in commands.items()}

    def client(self, home: Path) -> Client:
        """Of its backend, whose port stands in the environment of its importer."""
        found = Path(f"/proc/{self.children()['backend.cli']}/environ").read_text().split("\0")
        [url] = [line.partition("=")[2] for line in found if line.startswith("GROUPSCOPE_BACKEND_URL=")]
        return Client(url, (home / "token").read_text().strip())

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


def reaches(view: View, client: Client, steps: int) -> None:
    view.wait_for(lambda: client.run(1).progress.step >= steps)


@pytest.mark.thorough
def test_a_folder_is_shown_followed_and_shown_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    folder = copytree(FOREIGN / "verl" / "legacy", tmp_path / "run")
    third = (folder / "3.jsonl").rename(tmp_path / "later")
    home = view_home(folder)
    assert home.parent == tmp_path / "data" / "groupscope" / "view"
    for time in ("first", "second"):
        view = View(folder, tmp_path / f"{time}.log")
        try:
            children = view.children()
            assert set(children) == {"backend.app", "backend.cli", "dashboard.server"}
            with view.client(home) as client:
                assert "/run?id=1   (Ctrl-C" in view.said
                reaches(view, client, 2)
                if third.exists():
                    third.rename(folder / "3.jsonl")
                reaches(view, client, 3)
            assert view.interrupt() == 0
            assert not any(Path(f"/proc/{pid}").exists() for pid in children.values())
            assert "`groupscope view` continues where it stopped" in view.said
        finally:
            view.process.kill()
            view.process.wait()
    assert not (tmp_path / ".groupscope").exists()


@pytest.mark.parametrize("command", ["view", "up"])
def test_without_the_extras_the_command_says_which_to_install(tmp_path: Path, command: str) -> None:
    code = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'uvicorn' else find(name, *rest)\n"
        f"from backend.cli import app\napp([{command!r}, *{[str(tmp_path)] if command == 'view' else []!r}])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (
        1,
        "groupscope: the backend is not installed here: pip install 'groupscope[backend]'\n",
    )
