"""Reward functions that do everything wrong, for the child process: what they do is written in the completion."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from worker.rewards.functions import Completion
from worker.rewards.process import FILE_BYTES, MEMORY_BYTES


def hang() -> object:
    while True:
        pass


def print_without_end() -> object:
    while True:
        print("x" * 10_000)  # noqa: T201


def print_and_score() -> object:
    print("hello from a reward function")  # noqa: T201
    os.write(1, b"and from below it")
    return 1.0


def fork_and_leave_a_sleeper() -> object:
    with suppress(BlockingIOError):  # not root: the limit on processes forbids it
        if os.fork() == 0:
            signal.pause()
    return os.getpid()


def fork_and_return_twice() -> object:
    with suppress(BlockingIOError):
        os.fork()
    return 1.0


def fill_the_disk() -> object:
    with open("/tmp/groupscope-misbehaving", "wb") as file:
        os.unlink(file.name)
        for _ in range(4):  # more than it may, but no disk is full of it if the limit is gone
            file.write(b"x" * FILE_BYTES)
    return 0.0


def write_into_the_protocol() -> object:
    for descriptor in range(3, 20):
        try:
            os.write(descriptor, b"not json\n")
        except OSError:
            continue
    return 1.0


def pause_the_worker() -> object:
    os.kill(os.getppid(), signal.SIGSTOP)
    return 1.0


def recurse() -> object:
    return recurse()


def raise_without_words() -> object:
    class Wordless(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    raise Wordless


ACTS: dict[str, Callable[[], object]] = {
    "hang": hang,
    "hang without the interpreter": lambda: 95**7777**2121,  # one operation, which never lets another thread run
    "sleep": signal.pause,
    "print without end": print_without_end,
    "print": print_and_score,
    "read stdin": lambda: len(sys.stdin.read()),
    "fork": fork_and_leave_a_sleeper,
    "fork twice": fork_and_return_twice,
    "fill the disk": fill_the_disk,
    "write into the protocol": write_into_the_protocol,
    "pause the worker": pause_the_worker,
    "recurse": recurse,
    "raise without words": raise_without_words,
    "raise": lambda: 1 / 0,
    "raise a lone surrogate": lambda: (_ for _ in ()).throw(ValueError("\ud800")),
    "eat memory": lambda: len(bytearray(MEMORY_BYTES)),  # zeros: without a limit it costs nothing, and is given
    "exit": lambda: sys.exit(3),
    "exit at once": lambda: os._exit(0),
    "segfault": lambda: ctypes.string_at(0),
    "kill itself": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "pid": os.getpid,
    "environment": lambda: len([name for name in os.environ if "TOKEN" in name]),
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "none": lambda: None,
    "1e308": lambda: 1e308,
    "too large an integer": lambda: 10**400,
    "text": lambda: "1",
    "list": lambda: [1.0],
    "three scores": lambda: [1.0, 0.5, 0.0],
    "complex": lambda: 1j,
    "array": lambda: np.array([1.0]),
    "numpy true": lambda: np.bool_(True),
    "array of no dimension": lambda: np.array(0.25),
    "float32": lambda: np.float32(0.5),
    "bool": lambda: True,
    "one": lambda: 1,
}


def act(completion: Completion, **_: object) -> object:
    return ACTS[completion.text]()


FUNCTIONS: dict[str, Callable[..., object]] = {"length": act}
