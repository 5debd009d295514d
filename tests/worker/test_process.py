"""How the worker's process ends."""

import os
from typing import NoReturn

import pytest

from worker import process
from worker.process import Process


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


def test_a_process_that_nobody_asked_to_end_is_replaced_by_one_with_its_arguments(ways: list[str]) -> None:
    with pytest.raises(Ended):
        Process(["--device", "cpu"]).end()
    assert ways == ["-m worker.main --device cpu"]


def test_a_process_that_was_asked_to_end_does_not_start_again_even_if_it_was_asked_a_moment_ago(
    ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_before, asked_while_it_ends = Process([]), Process([])
    asked_before.ask()
    with pytest.raises(Ended):
        asked_before.end()
    monkeypatch.setattr(process, "_kill_children", asked_while_it_ends.ask)
    with pytest.raises(Ended):
        asked_while_it_ends.end()
    assert ways == ["exit 0", "exit 0"]
