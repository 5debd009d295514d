"""How the worker's process ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import NoReturn

import pytest

from worker import process
from worker.process import Process

SIGTERM = partial(signal.raise_signal, signal.SIGTERM)


class Ended(BaseException):
    """In place of what ends a process: nothing after it is reached."""


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How the process ended."""
    found = list[str]()

    def by(way: str) -> NoReturn:
        found.append(way)
        raise Ended

    monkeypatch.setattr(os, "_exit", lambda code: by(f"exit {code}"))
    monkeypatch.setattr(os, "execv", lambda program, arguments: by(" ".join(arguments[1:])))
    monkeypatch.setattr(process, "_kill_children", lambda: None)
    return found


@pytest.mark.parametrize(
    ("once", "parent", "over", "way"),
    [
        (False, None, False, "-m worker.main --device cpu"),
        (True, None, True, "exit 0"),
        (True, None, False, "exit 75"),  # the run is not over
        (False, os.getppid(), False, "exit 1"),  # the parent starts another
    ],
)
def test_a_process_is_replaced_by_one_with_its_arguments_unless_it_is_for_one_run_or_has_a_parent(
    once: bool, parent: int | None, over: bool, way: str, ways: list[str]
) -> None:
    one = Process(["--device", "cpu"], once=once, parent=parent)
    one.last = once
    with pytest.raises(Ended):
        one.end(over)
    assert ways == [way]


@pytest.fixture
def listening() -> Iterator[Process]:
    """A process that notices signals, until the test is over."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    one = Process([])
    one.listen()
    yield one
    signal.set_wakeup_fd(-1)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_second_signal_hurries(listening: Process) -> None:
    assert not listening.shutting_down()
    SIGTERM()
    assert listening.shutting_down()
    assert not listening.hurried()
    signal.raise_signal(signal.SIGINT)
    assert listening.hurried()


@pytest.mark.parametrize("moment", ["before it ends", "while it ends", "while it says that it starts again"])
def test_a_process_that_was_asked_to_end_does_not_start_again(
    moment: str, listening: Process, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if moment == "before it ends":
        SIGTERM()
    elif moment == "while it ends":
        monkeypatch.setattr(process, "_kill_children", SIGTERM)
    else:
        monkeypatch.setattr(process.log, "warning", lambda said: SIGTERM())
    with pytest.raises(Ended):
        listening.end()
    assert ways == ["exit 0"]


HANGING = """
import ctypes, os, signal, threading, time
from worker.process import Process

process = Process([])
process.listen()

def watch():
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)
    deadline = time.monotonic() + 30
    while not process.shutting_down() and time.monotonic() < deadline:
        time.sleep(0.01)
    print(process.shutting_down(), flush=True)
    os._exit(0)

threading.Thread(target=watch).start()
mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
libc.pthread_mutex_lock(mutex)
libc.pthread_mutex_lock(mutex)  # never returns, and no signal wakes it
"""


@pytest.mark.slow
def test_a_worker_whose_main_thread_hangs_in_c_notices_that_it_is_asked_to_end() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == "True\n", ended.stderr
