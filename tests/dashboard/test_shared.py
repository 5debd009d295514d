"""What many people's pages need at the same time is read and computed once, and never kept too long."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dashboard.components import live
from dashboard.shared import Shared


def test_many_who_ask_at_the_same_time_cause_one_reading() -> None:
    shared: Shared[int] = Shared(seconds=60, most=10)
    asked, go = [], threading.Event()

    def read() -> int:
        go.wait(10)
        asked.append(1)
        return 7

    with ThreadPoolExecutor(20) as threads:
        answers = [threads.submit(shared.get, "key", read) for _ in range(20)]
        go.set()
        assert [answer.result() for answer in answers] == [7] * 20
    assert len(asked) == 1


def test_what_is_too_old_or_forgotten_or_failed_or_was_read_before_a_change_is_read_again() -> None:
    numbers = iter(range(10))
    assert [Shared(seconds=0, most=10).get("key", lambda: next(numbers)) for _ in range(2)] == [0, 1]
    shared: Shared[int] = Shared(seconds=60, most=10)
    assert [shared.get("key", lambda: next(numbers)) for _ in range(2)] == [2, 2]
    assert shared.get("other", lambda: next(numbers)) == 3
    shared.forget()
    assert shared.get("key", lambda: next(numbers)) == 4

    def read_while_somebody_changes_it() -> int:
        shared.forget()
        return 8

    assert shared.get("changed", read_while_somebody_changes_it) == 8
    assert shared.get("changed", lambda: 9) == 9

    def fail() -> int:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        shared.get("failed", fail)
    assert shared.get("failed", lambda: 1) == 1


def test_the_oldest_values_go_first() -> None:
    shared: Shared[int] = Shared(seconds=60, most=2)
    for key in range(3):
        shared.get(key, lambda key=key: key)  # type: ignore[misc]
    assert [shared.get(key, lambda: -1) for key in (2, 1, 0)] == [2, 1, -1]


def test_a_few_pages_are_drawn_at_a_time_and_a_part_of_one_does_not_wait_for_itself() -> None:
    inside, most, lock = 0, 0, threading.Lock()
    many = threading.Barrier(3, timeout=30)

    def draw() -> None:
        nonlocal inside, most
        with live.in_turn(), live.in_turn():
            with lock:
                inside += 1
                most = max(most, inside)
            many.wait()
            with lock:
                inside -= 1

    with ThreadPoolExecutor(12) as threads:
        for drawn in [threads.submit(draw) for _ in range(12)]:
            drawn.result()
    assert most == 3
