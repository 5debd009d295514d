"""`groupscope up` as a person uses it: three processes, one Ctrl-C, and nothing lost or left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import free_port, wait_until
from serving import Backends

from backend.contract.client import Client
from backend.up import submit_quickstart

pytestmark = pytest.mark.slow


class Up:
    """A running `groupscope up`, and what it has said so far."""

    def __init__(self, home: Path, *options: str) -> None:
        self.port, self.backend_port = free_port(), free_port()
        self.log = home.with_suffix(".log")
        ports = ["--port", str(self.port), "--backend-port", str(self.backend_port)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "backend.cli", "up", "--no-browser", "--home", str(home), *ports, *options],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        self.wait_for(lambda: "open http://" in self.said, "it is up")
        self.client = Client(f"http://127.0.0.1:{self.backend_port}", (home / "token").read_text())

    @property
    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        def held() -> bool:
            assert self.process.poll() is None, self.said
            return condition()

        wait_until(held, what, 90)

    def children(self) -> dict[str, int]:
        """Process ids by what runs in them."""
        found = {}
        for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            found[command[2]] = int(pid)  # python -m <module>
        return found

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


@contextmanager
def up(home: Path, *options: str) -> Iterator[Up]:
    one = Up(home, *options)
    try:
        yield one
    finally:
        one.client.close()
        one.process.kill()
        one.process.wait()


@pytest.mark.thorough
def test_three_processes_come_up_alone_in_their_home_and_one_interrupt_stops_them_without_losing_the_run(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    with up(home) as first:
        children = first.children()
        assert set(children) == {"backend.app", "worker.main", "dashboard.server"}
        [run] = first.client.runs().items
        assert (run.name, run.config["recipe"]) == ("quickstart", "grpo")
        first.wait_for(lambda: first.client.run(run.id).status == "running", "the run begins")

        ports = ["--port", str(free_port()), "--backend-port", str(free_port())]
        command = [sys.executable, "-m", "backend.cli", "up", "--no-browser", "--home", str(home), *ports]
        second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert second.returncode == 1
        assert f"already runs in {home}" in second.stderr
        assert f"http://127.0.0.1:{first.port}" in second.stderr

        os.kill(children["worker.main"], signal.SIGKILL)
        first.wait_for(
            lambda: "the worker was killed by SIGKILL" in first.said and "is started again" in first.said, "it says so"
        )
        first.wait_for(lambda: "worker.main" in first.children(), "the worker is back")
        children = first.children()
        assert first.interrupt() == 0
        assert "stopped" in first.said
        assert not any(Path(f"/proc/{pid}").exists() for pid in children.values())

    with Backends(home) as backends:  # as the next start finds it
        client = backends.start().client
        said: list[str] = []
        submit_quickstart(client, said.append)
        assert said == []
        assert [one.name for one in client.runs().items] == ["quickstart"]
