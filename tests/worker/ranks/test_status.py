"""What a process of several says of itself."""

import os
import socket
from queue import Queue

from backend.contract.records import Progress, Rank
from worker.ranks.board import ENDED
from worker.ranks.status import Status
from worker.ranks.waiting import WAITING, Waiting


def status(said: "Queue[Rank]") -> Status:
    return Status(1, said.put, lambda: (10, 20))


def test_it_speaks_by_itself_and_says_when_it_waits() -> None:
    said: Queue[Rank] = Queue()
    with status(said), WAITING.others():
        first = said.get(timeout=20)
        assert (first.host, first.pid) == (socket.gethostname(), os.getpid())
        assert (first.rank, first.phase, first.memory_bytes, first.peak_bytes) == (1, None, 10, 20)
        assert not first.waits_seconds
        while not said.get(timeout=20).waits_seconds:
            pass  # the main thread stands still here, as in a call that waits for the others


def test_it_says_its_share_of_a_phase_and_how_long_it_works_in_a_step_once_there_are_enough() -> None:
    said: Queue[Rank] = Queue()
    one = status(said)
    for step in range(5):
        one.show(Progress(step=step, phase="rollout", done=2, total=8))
        one.worked({"rollout": 1.0 + step, "update": 0.5})
        before = one
    with before:
        last = said.get(timeout=20)
        while last.step_seconds is None:
            last = said.get(timeout=20)
    assert (last.step, last.phase, last.done, last.total) == (4, "rollout", 2, 8)
    assert (last.worked, last.step_seconds) == ({"rollout": 5.0, "update": 0.5}, 3.5)


def test_its_last_word_is_that_it_has_ended() -> None:
    said: Queue[Rank] = Queue()
    with status(said) as one:
        one.show(Progress(step=3, phase="checkpoint", done=0, total=1))
    last = [said.get_nowait() for _ in range(said.qsize())][-1]
    assert (last.step, last.phase, last.done, last.total) == (3, ENDED, None, None)


def test_waits_add_up_and_what_is_computed_between_them_does_not_count() -> None:
    waiting = Waiting()
    with waiting.others():
        waiting.end()
        assert waiting.since is None
        before = waiting.seconds
        waiting.begin()
    assert waiting.since is None
    assert waiting.seconds > before
    waiting.end()
