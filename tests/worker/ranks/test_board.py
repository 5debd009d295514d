"""What each process of a run says of itself, and what a worker makes of it: how far all are together, and which one the others wait for."""

import os
import socket
from queue import Queue

from clock import Clock

from backend.contract.records import MOST_RANKS, Progress, Rank
from worker.ranks.board import ENDED, Board
from worker.ranks.status import Status
from worker.ranks.waiting import WAITING, Waiting


def board(count: int, clock: Clock | None = None) -> Board:
    one = Board(clock or Clock())
    one.begin(count)
    return one


def slow(one: Board) -> dict[int, str | None]:
    ranks = one.picture()
    assert ranks is not None
    return {rank.rank: rank.slow for rank in ranks.items if rank.slow}


def test_a_run_in_one_process_has_no_board_and_its_own_progress() -> None:
    alone, progress = Board(), Progress(step=3, phase="rollout", done=1, total=4)
    assert alone.picture() is None
    assert alone.whole(progress) == progress


def test_progress_is_that_of_all_processes() -> None:
    three, mine = board(3), Progress(step=2, phase="rollout", done=1, total=8)
    three.hear(1, Rank(rank=1, step=2, phase="rollout", done=3, total=8))
    three.hear(2, Rank(rank=2, step=1, phase="rollout", done=4, total=4))  # still in the step before
    assert three.whole(mine) == mine.model_copy(update={"done": 4, "total": 24})
    three.hear(1, Rank(rank=1, step=2, phase="reward", done=0, total=8))  # it has done its share of the rollout
    three.hear(2, Rank(rank=2, step=2, phase="rollout", done=1, total=4))
    assert three.whole(mine) == mine.model_copy(update={"done": 10, "total": 20})


def test_a_word_that_says_nothing_new_is_no_progress() -> None:
    two = board(2)
    assert two.hear(1, Rank(rank=1, step=2, phase="rollout", done=3))
    assert not two.hear(1, Rank(rank=1, step=2, phase="rollout", done=3, waits_seconds=9.0))
    assert two.hear(1, Rank(rank=1, step=2, phase="rollout", done=4))
    assert two.hear(1, Rank(rank=1, step=2, phase="reward", done=4))


def test_one_that_is_not_heard_while_others_are_holds_them_up() -> None:
    clock = Clock()
    two = board(2, clock)
    two.hear(0, Rank(rank=0, phase="rollout"))
    two.hear(1, Rank(rank=1, phase="rollout"))
    clock.now += 6
    assert slow(two) == {}  # nobody was heard: the worker itself was held up
    two.hear(0, Rank(rank=0, phase="rollout", waits_seconds=5.0))
    assert slow(two) == {1: "silent"}
    two.hear(1, Rank(rank=1, phase="rollout"))
    assert slow(two) == {}


def test_one_that_was_not_heard_while_others_were_is_remarked_on_once_it_speaks_again() -> None:
    clock = Clock()
    two = board(2, clock)
    for seconds in (0, 4, 8):
        clock.now = 1000.0 + seconds
        two.hear(0, Rank(rank=0, step=20))
        if not seconds:
            two.hear(1, Rank(rank=1, step=20))
    assert two.remarks() == []
    two.hear(1, Rank(rank=1, step=20))
    assert two.remarks() == ["process 1 was not heard for 8 s at step 20, while others were"]
    clock.now += 60
    for rank in (0, 1):  # the worker itself was held up
        two.hear(rank, Rank(rank=rank, step=21))
    assert two.remarks() == []


def test_one_that_has_ended_holds_nobody_up_while_the_first_still_reports() -> None:
    clock = Clock()
    three = board(3, clock)
    three.hear(1, Rank(rank=1, phase=ENDED))
    three.hear(2, Rank(rank=2, phase=ENDED, step_seconds=9.0))
    clock.now += 60
    three.hear(0, Rank(rank=0, phase="checkpoint", step_seconds=1.0))
    assert slow(three) == {}


def test_one_that_works_half_as_long_again_as_the_median_holds_the_others_up_and_a_little_more_is_noise() -> None:
    four = board(4)
    for rank, seconds in enumerate((1.0, 1.1, 1.45, 1.2)):
        four.hear(rank, Rank(rank=rank, step_seconds=seconds))
    assert slow(four) == {}
    four.hear(2, Rank(rank=2, step_seconds=1.8))
    assert slow(four) == {2: "slower"}
    four.hear(2, Rank(rank=2))  # too few steps so far
    assert slow(four) == {}
    for rank, seconds in enumerate((0.2, 0.5, 0.2, 0.2)):  # short steps
        four.hear(rank, Rank(rank=rank, step_seconds=seconds))
    assert slow(four) == {}


def test_of_a_thousand_processes_those_are_sent_that_hold_the_others_up_and_the_memory_of_all() -> None:
    many = board(1024)
    for rank in range(1024):
        many.hear(rank, Rank(rank=rank, step_seconds=4.0 if rank == 1000 else 1.0, memory_bytes=2**30))
    ranks = many.picture()
    assert ranks is not None
    assert (ranks.count, len(ranks.items), ranks.memory_bytes) == (1024, MOST_RANKS, 2**40)
    assert [one.rank for one in ranks.items if one.slow] == [1000]
    assert len(ranks.model_dump_json()) < 20_000


# ---- what a process says


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
    with one:
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
