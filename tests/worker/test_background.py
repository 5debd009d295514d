"""Work beside the training: in order, bounded, and an error in it is never lost."""

import threading
import weakref

import pytest
from processes import wait_until

from worker.reporter import MOST_WAITING, Background


class Broken(Exception):
    """Stands for what goes wrong in a task."""


def fail() -> None:
    raise Broken


def test_tasks_are_done_in_order_and_before_it_is_left() -> None:
    done: list[int] = []
    with Background("test") as background:
        for number in range(20):
            background.put(lambda number=number: done.append(number))  # type: ignore[misc]
    assert done == list(range(20))


def test_an_error_meets_whoever_comes_next_and_nothing_is_done_after_it() -> None:
    done: list[int] = []

    def run() -> None:
        with Background("test") as background:
            background.put(fail)
            for come_next in (background.wait, lambda: background.put(lambda: done.append(1)), background.check):
                with pytest.raises(Broken):
                    come_next()

    with pytest.raises(Broken):
        run()
    assert done == []


def test_an_error_in_the_last_task_is_raised_where_it_is_left() -> None:
    with pytest.raises(Broken), Background("test") as background:
        background.put(fail)


def test_an_error_that_it_is_left_with_goes_first_and_what_was_put_is_still_done() -> None:
    done: list[int] = []

    def run() -> None:
        with Background("test") as background:
            background.put(lambda: done.append(1))
            background.put(fail)
            raise KeyError

    with pytest.raises(KeyError):
        run()
    assert done == [1]


def test_it_never_falls_far_behind() -> None:
    go, put = threading.Event(), list[int]()
    with Background("test") as background:
        background.put(lambda: go.wait(10))

        def bring() -> None:
            for number in range(3 * MOST_WAITING):
                background.put(lambda: None)
                put.append(number)

        bringing = threading.Thread(target=bring)
        bringing.start()
        wait_until(lambda: len(put) == MOST_WAITING, "it has brought what may wait", 10)
        bringing.join(0.2)
        assert len(put) == MOST_WAITING
        go.set()
        bringing.join(10)
    assert len(put) == 3 * MOST_WAITING


def test_nothing_of_a_task_is_kept_once_it_is_done() -> None:
    class Heavy:
        """What a task may hold on to."""

    heavy = Heavy()
    seen = weakref.ref(heavy)
    with Background("test") as background:
        background.put(lambda held=heavy: None)  # type: ignore[misc]
        del heavy
        background.wait()
        assert seen() is None
