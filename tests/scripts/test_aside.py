"""The process beside a training: what the training's signals, its forks and a process that hangs do to it."""

import os
import pickle
import signal
import threading
from pathlib import Path

import psutil
import pytest
from processes import wait_until

import groupscope.aside
from groupscope.aside import Aside


class Notes:
    """Writes down what it is given."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def add(self, text: str) -> None:
        with self._file.open("a") as file:
            file.write(text)

    def ended(self, error: str | None) -> None:
        self.add(f" ended: {error}")

    def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


OTHER_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2")


@pytest.mark.parametrize("name", ["SIGTERM", *(pytest.param(one, marks=pytest.mark.thorough) for one in OTHER_SIGNALS)])
def test_a_signal_to_all_processes_of_a_job_is_the_trainings_alone(tmp_path: Path, name: str) -> None:
    file = tmp_path / "notes"
    aside = Aside(Notes, file)
    os.kill(aside._process.pid, signal.Signals[name])  # while it starts
    aside.call("add", "one")
    wait_until(file.exists, "it works")
    os.kill(aside._process.pid, signal.Signals[name])
    aside.call("add", " two")
    aside.close()
    assert file.read_text() == "one two"
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.Signals[name]}


def test_a_process_that_takes_nothing_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(groupscope.aside, "PATIENCE", 0.5)
    aside = Aside(Notes, tmp_path / "notes")
    aside.call("stop")
    aside.call("add", "x" * 2**22)  # more than the pipe holds
    aside.close()
    assert aside._process.poll() == -signal.SIGKILL
    assert "takes nothing any more" in caplog.text


def test_it_is_said_if_the_process_dies_with_the_last_messages_in_the_pipe(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    aside = Aside(Notes, tmp_path / "notes")
    aside.call("stop")
    aside.call("add", "lost")
    closing = threading.Thread(target=aside.close)
    closing.start()
    wait_until(lambda: not aside._writer.is_alive(), "the pipe took all")
    wait_until(lambda: psutil.Process(aside._process.pid).status() == psutil.STATUS_STOPPED, "it reads no more")
    aside._process.kill()
    closing.join(10)
    assert "the process that records has ended (status -9)" in caplog.text


def test_what_cannot_be_handed_over_starts_no_process(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        Aside(Notes, lambda: tmp_path)
    assert threading.active_count() == before


class Elsewhere:
    """Found in no other process."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.open, ("/nowhere", 0)


def test_what_the_process_cannot_read_is_said_once_and_nothing_is_kept_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    aside = Aside(Notes, Elsewhere())
    wait_until(lambda: aside._process.poll() is not None, "it has ended")
    for _ in range(3):
        aside.call("add", "x" * 2**20)
    wait_until(lambda: aside._gone and aside._waiting.empty(), "what waited is forgotten")
    aside.close()
    assert caplog.text.count("/nowhere") == 1
    assert aside._process.returncode == 1


def test_a_process_that_was_forked_from_the_training_ends_no_record(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    aside = Aside(Notes, file)
    if (child := os.fork()) == 0:
        aside._at_exit()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    aside.call("add", "one")
    aside.close()
    assert file.read_text() == "one"
