"""Programs are kept running, stopped in order, and none is left behind. Real processes throughout."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import wait_until

from backend import supervisor as module
from backend.supervisor import Child, Program, Supervisor


class Stage:
    """A supervisor, what it said, and the folder its programs write to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.supervisor = Supervisor(folder, self.said.append)

    def start(self, name: str, script: str, grace: float = 10.0) -> Child:
        return self.supervisor.start(Program(name, [sys.executable, "-Suc", script], {"F": str(self.folder)}, grace))

    def until(self, ready: Callable[[], bool]) -> None:
        assert self.supervisor.wait_until(ready, 20)

    def written(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(module, "TICK", 0.02)
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.05)
    one = Stage(tmp_path)
    yield one
    one.supervisor.stop()


def note(name: str, text: str) -> str:
    """Source that appends to a file."""
    return f"open(__import__('os').environ['F'] + '/{name}', 'a').write({text!r}); "


def gone(pid: int | None) -> bool:
    """Whether a process has ended (a zombie that nobody reaped has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


STAY = "__import__('time').sleep(60)"
IGNORE_TERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "


@pytest.mark.slow
def test_a_crashed_program_is_started_again_and_said_to_be_with_doubled_pauses_also_if_its_log_is_deleted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.2)
    child = stage.start("worker", note("starts", "x") + "print('no memory left'); raise SystemExit(3)")
    stage.until(lambda: stage.written("starts").startswith("xx"))
    assert any("the worker ended with exit code 3" in line for line in stage.said)
    assert any("no memory left" in line for line in stage.said)
    assert any("the worker is started again" in line for line in stage.said)

    def ends_without_log() -> bool:
        (stage.folder / "worker.log").unlink(missing_ok=True)  # before each look at the program, so also at its end
        return any("its last line: (nothing)" in line for line in stage.said)

    stage.until(ends_without_log)
    stage.until(lambda: len(stage.written("starts")) >= 5)
    assert child._pause == 0.2


@pytest.mark.slow
def test_what_does_not_stop_in_its_grace_is_killed_with_its_children(stage: Stage) -> None:
    grandchild = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-Sc', {IGNORE_TERM + STAY!r}]); "
    child = stage.start(
        "worker",
        IGNORE_TERM + grandchild + "open(__import__('os').environ['F'] + '/pid', 'w').write(str(p.pid)); " + STAY,
        0.2,
    )
    stage.until(lambda: stage.written("pid") != "")
    stage.supervisor.stop()
    wait_until(lambda: gone(child.pid) and gone(int(stage.written("pid"))), "it has ended")


def test_stopping_asks_first_waits_for_the_answer_and_begins_with_the_last_started(stage: Stage) -> None:
    for name in ("backend", "worker"):
        answer = note("order", f"{name} ").rstrip("; ")
        quit_ = f"import signal, sys; signal.signal(signal.SIGTERM, lambda *_: ({answer}, sys.exit(0))); "
        stage.start(name, quit_ + note(name, "ready") + STAY)
    stage.until(lambda: stage.written("backend") == stage.written("worker") == "ready")
    stage.supervisor.stop()
    assert stage.written("order") == "worker backend "


def test_a_second_interrupt_does_not_wait(stage: Stage) -> None:
    child = stage.start("worker", IGNORE_TERM + note("out", "ready") + STAY, grace=60)
    stage.until(lambda: stage.written("out") == "ready")
    stage.supervisor.on_signal()
    stage.supervisor.on_signal()
    stage.supervisor.stop()
    assert gone(child.pid)


def test_the_last_words_of_a_log_are_fit_for_a_terminal(stage: Stage) -> None:
    child = stage.start("worker", r"print('fine'); print('\x1b[2Jboom\n\n'); " + STAY)
    stage.until(lambda: "boom" in child.last_words())
    assert child.last_words() == "\ufffd[2Jboom"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_supervisor_that_is_killed_outright_takes_its_programs_along(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from backend.supervisor import Program, Supervisor\n"
        f"s = Supervisor(Path({str(tmp_path)!r}), print)\n"
        f"print(s.start(Program('worker', [sys.executable, '-Sc', {STAY!r}], {{}}, 1)).pid, flush=True)\n"
        "s.watch()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert not gone(pid)
        os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: gone(pid), "it has ended")


def test_a_log_never_grows_beyond_two_files_of_a_bounded_size(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_LOG", 100_000)
    line = "os.write(1, b'line %d %s\\n' % (n, b'x' * 9_990))"  # the log is cut between two writes
    script = f"import os, time\nfor n in range(30):\n  {line}; time.sleep(0.05)\ntime.sleep(60)"
    stage.start("talker", script)
    stage.until(lambda: "line 29 " in stage.written("talker.log"))
    both = [stage.written("talker.log.1"), stage.written("talker.log")]
    assert all(len(one) < 250_000 for one in both)
    assert both[1].startswith("line")  # no hole where the earlier lines were
    assert "line 19 " in "".join(both)
