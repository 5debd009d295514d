"""Reward functions with TRL's signature that go wrong once, at the first completion, and give 1 to every other.

Each is imported in the reward process from a folder that the test copies this file into.
"""

import ctypes
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

Function = Callable[..., object]


def once(misbehave: Callable[[], object]) -> Function:
    """The first call does `misbehave`, in whatever process; a file remembers it."""

    def function(completions: list[object], **_: object) -> object:
        marker = Path(__file__).with_name(f"{misbehave.__name__}.done")
        if marker.exists():
            return [1.0] * len(completions)
        marker.touch()
        return misbehave()

    return function


def _hang() -> object:
    while True:
        pass


def _hang_without_the_interpreter() -> object:
    return [95**77**21]  # one operation, which never lets another thread run


def _backtrack() -> object:
    return [float(re.search(r"(a+)+$", "a" * 60 + "b") is not None)]


def _sleep() -> object:
    time.sleep(600)
    return [1.0]


def _divide_by_zero() -> object:
    return [1 / 0]


def _exit() -> object:
    sys.exit(3)


def _exit_at_once() -> object:
    os._exit(0)


def _segfault() -> object:
    return [ctypes.string_at(0)]


def _print_without_end() -> object:
    while True:
        print("x" * 10_000)  # noqa: T201 — this is what it is for


def _fill_the_disk() -> object:
    with Path(__file__).with_name("large").open("wb") as file:
        for _ in range(64):  # more than it may, but no disk is full of it if the limit is gone
            file.write(b"x" * 1_000_000)
    return [0.0]


def _fork() -> object:
    with suppress(BlockingIOError):  # not root: the limit on processes forbids it
        if os.fork() == 0:
            time.sleep(600)
    return [1.0]


hang = once(_hang)
hang_without_the_interpreter = once(_hang_without_the_interpreter)
backtrack = once(_backtrack)
sleep = once(_sleep)
divide_by_zero = once(_divide_by_zero)
exit_softly = once(_exit)
exit_at_once = once(_exit_at_once)
segfault = once(_segfault)
print_without_end = once(_print_without_end)
fill_the_disk = once(_fill_the_disk)
fork = once(_fork)


def _returning(name: str, value: object) -> Function:
    def misbehave() -> object:
        return value

    misbehave.__name__ = name
    return once(misbehave)


nan = _returning("nan", [float("nan")])
infinity = _returning("infinity", [float("inf")])
none = _returning("none", [None])
too_large = _returning("too_large", [1e308])
a_text = _returning("a_text", "1")
a_text_in_a_list = _returning("a_text_in_a_list", ["1"])
one_too_many = _returning("one_too_many", [1.0, 1.0])
one_too_few = _returning("one_too_few", [])
a_bare_number = _returning("a_bare_number", 1.0)
a_table = _returning("a_table", {0: 1.0})


def always_raise(**_: object) -> object:
    """Every completion."""
    raise LookupError("no such thing")
