"""The processes of a run are started and heard, and each way to end is reported."""

import ipaddress
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock, PropertyMock, patch

import psutil
import pytest
import torch
from processes import wait_until
from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]
from torch.multiprocessing.spawn import ProcessContext

from backend.contract.protocol import Fail
from backend.contract.records import RunError
from worker.errors import Interrupted, RunFailure
from worker.ranks import launch
from worker.ranks.files import write_tensors
from worker.ranks.launch import Heard, Line, Part, RankFailed, run_ranks
from worker.ranks.ranks import Ranks
from worker.reporter import MOST_WAITING, Background

CPU = torch.device("cpu")
PATIENCE = timedelta(minutes=5)


def run(
    work: Callable[..., Any], *given: object, count: int = 2, part: Part | None = None, **answers: Callable[..., Any]
) -> Any:
    devices = [CPU] * count
    return run_ranks(
        work, given, attempt=3, devices=devices, shards=count, patience=PATIENCE, answers=answers, part=part
    )


def failure(work: Callable[..., Any], *given: object, **named: Any) -> Fail:
    """What a run ends with that fails."""
    with pytest.raises(RankFailed) as failed:
        run(work, *given, **named)
    return failed.value.fail


@pytest.fixture
def meeting() -> Iterator[tuple[str, str]]:
    """Where the nodes of a run meet."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield f"127.0.0.1:{store.port}", "meeting"
    del store  # it answers until here


def talk(ranks: Ranks, device: torch.device, line: Line, word: str) -> list[Any]:
    everybody = ranks.gather((ranks.rank, os.getpid(), torch.get_num_threads(), device.type, word))
    told = ranks.of_first(line.ask("double", 21) if ranks.first else None)
    return [everybody, told, ranks.any(ranks.rank == 1), ranks.any(False), [list(ranks.share(4)), list(ranks.share(0))]]


def fail(ranks: Ranks, device: torch.device, line: Line, which: int, killed: bool) -> None:
    if ranks.rank == which:
        if killed:
            os.kill(os.getpid(), signal.SIGKILL)
        raise RunFailure("prompt_too_long", "Shorten it.")
    ranks.gather(None)  # waits for the one that failed


def ask_for_more(ranks: Ranks, device: torch.device, line: Line) -> None:
    if ranks.first:
        line.ask("more")
    ranks.gather(None)


def be_asked_to_end(ranks: Ranks, device: torch.device, line: Line, _: object) -> list[int]:
    be_asked()
    asks = {signal.SIGINT, signal.SIGTERM}
    assert not asks & signal.pthread_sigmask(signal.SIG_BLOCK, ())  # what it starts can be asked, too
    return ranks.gather(ranks.rank)


def listening(ranks: Ranks, device: torch.device, line: Line) -> set[str]:
    """The addresses at which this run's processes and their worker can be reached from outside."""
    ranks.mesh(device)
    ranks.any(False)
    everybody = [psutil.Process(pid) for pid in (os.getppid(), *ranks.gather(os.getpid()))]
    every = {one.laddr.ip for each in everybody for one in each.net_connections() if one.status == psutil.CONN_LISTEN}
    ranks.gather(None)  # none has ended before all are looked at
    return {address for address in every if not ipaddress.ip_address(address).is_loopback}


def save_below_a_file(ranks: Ranks, device: torch.device, line: Line, file: Path) -> None:
    write_tensors(file / "model.safetensors", {"weight": torch.ones(4)}, ranks)


def be_asked() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class AskedWhileItStarts:
    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return be_asked, ()  # called where a process that starts takes in what it was given


class SlowToHandOver:
    """What the second process is given once the first one has been heard."""

    def __init__(self, take: Mock) -> None:
        self.take, self.times = take, 0

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        self.times += 1
        if self.times == 2:
            wait_until(lambda: self.take.called, "the first process is there")
        return str, ("hello",)


class FatalToTheSecond:
    """What the second process does not survive."""

    times = 0

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        self.times += 1
        return (os.abort, ()) if self.times == 2 else (str, ("hello",))


def leave(ranks: Ranks, device: torch.device, line: Line) -> None:
    if ranks.first:
        raise Interrupted("paused")
    time.sleep(600)


def gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or "Z" in stat.read_text()


def fail_while_the_first_has_much_to_send(ranks: Ranks, device: torch.device, line: Line) -> None:
    other = ranks.gather(os.getpid())[1]
    if not ranks.first:
        line.tell("status", "hello")
        raise RunFailure("prompt_too_long", "Shorten it.")

    def send(number: int) -> None:
        wait_until(lambda: gone(other), "the other one has gone")
        time.sleep(0.2)
        line.ask("send", number)

    with Background("reports") as background:
        for number in range(MOST_WAITING):
            background.put(partial(send, number))
        ranks.gather(None)


def send_slowly_once_another_node_failed(ranks: Ranks, device: torch.device, line: Line) -> None:
    line.ask("send", 0)  # from here on the other node has failed
    for number in (1, 2):
        time.sleep(0.5)  # as for the report of a large step
        line.ask("send", number)
    raise DistError("the other one has gone")


pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_processes_meet_divide_and_ask_and_the_first_ones_result_counts() -> None:
    everybody, told, one, none, shares = run(talk, "hello", count=3, double=lambda number: 2 * number)
    assert [(rank, device, word) for rank, _, _, device, word in everybody] == [(n, "cpu", "hello") for n in range(3)]
    assert len({pid for _, pid, *_ in everybody} | {os.getpid()}) == 4
    assert (told, one, none, shares) == (42, True, False, [[0, 1], []])


def test_a_process_that_is_there_before_the_next_is_started_takes_nothing_from_it() -> None:
    with patch.object(Heard, "take", autospec=True, side_effect=Heard.take) as take:
        everybody, *_ = run(talk, SlowToHandOver(take), double=lambda number: 2 * number)
    assert [word for *_, word in everybody] == ["hello", "hello"]


def test_a_process_that_dies_while_it_starts_is_not_taken_for_another() -> None:
    with patch.object(ProcessContext, "_join_procs_with_timeout"):  # which would wait for half a minute
        told = failure(talk, FatalToTheSecond())
    assert "no reason is known" in told.error.message
    assert "SIGABRT" in str(told.error.details)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("killed", [False, True])
def test_what_one_process_ended_with_is_told_and_not_that_the_other_lost_it(which: int, killed: bool) -> None:
    told = failure(fail, which, killed)
    code = "rank_died" if killed else "prompt_too_long"
    assert (told.attempt, told.error.code, told.retryable) == (3, code, killed)
    assert not killed or re.match(rf"Process {which} of the 2 processes .* died \(SIGKILL\)", told.error.message)


def test_an_exit_status_that_torchs_agent_has_taken_is_asked_for_until_it_has_noted_it() -> None:
    child = Mock()
    type(child).exitcode = PropertyMock(side_effect=[None, None, -9, -9])
    assert launch._exit_code(child) == -9


def test_what_the_first_one_has_to_send_is_sent_although_another_one_failed() -> None:
    sent: list[int] = []
    said: list[tuple[int, str]] = []
    with patch.object(ProcessContext.join, "__defaults__", (None, 0.1)):  # torch's agent kills the others after 30 s
        told = failure(fail_while_the_first_has_much_to_send, send=sent.append, status=lambda *one: said.append(one))
    assert told.error.code == "prompt_too_long"
    assert sent == list(range(MOST_WAITING))
    assert said == [(1, "hello")]


def test_what_the_first_one_has_to_send_is_sent_although_another_node_failed(meeting: tuple[str, str]) -> None:
    sent: list[int] = []
    said = Fail(attempt=3, error=RunError(code="prompt_too_long", message="Shorten it."), retryable=False)
    part = Part(0, 1, meeting, lambda: (1, said, False) if sent else None)
    with patch.object(launch, "_LAST_WORDS_OF_NODES_SECONDS", 0.3):
        assert failure(send_slowly_once_another_node_failed, count=1, part=part, send=sent.append) == said
    assert sent == [0, 1, 2]


def test_a_launcher_that_asks_every_process_to_end_ends_none_since_the_worker_decides() -> None:
    assert run(be_asked_to_end, AskedWhileItStarts()) == [0, 1]


def test_no_other_machine_can_reach_the_processes_of_one() -> None:
    before = {one.laddr.ip for one in psutil.Process().net_connections() if one.status == psutil.CONN_LISTEN}
    assert run(listening) - before == set()


def test_what_stood_in_the_way_of_a_checkpoint_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "NotADirectoryError" in failure(save_below_a_file, tmp_path / "file").error.message


def test_what_an_answer_raises_ends_them_and_is_raised_here() -> None:
    with pytest.raises(LookupError, match="no more"):
        run(ask_for_more, more=Mock(side_effect=LookupError("no more")))


def test_an_interrupted_first_process_ends_the_others() -> None:
    with patch.object(launch, "_LEAVE_SECONDS", 0.5):
        assert run(leave) == "paused"


def lose_another_node(ranks: Ranks, device: torch.device, line: Line) -> None:
    line.ask("lose")
    raise RuntimeError("[/gloo/transport/tcp/pair.cc:553] Connection closed by peer")


@pytest.mark.parametrize("known", [True, False])
def test_a_node_that_was_lost_is_named_once_it_is_known_and_a_torn_connection_is_no_crash(
    meeting: tuple[str, str], known: bool
) -> None:
    lost: list[float] = []
    said = Fail(attempt=3, error=RunError(code="rank_died", message="Node 1 was lost."), retryable=True)

    def elsewhere() -> tuple[int, Fail, bool] | None:
        return (1, said, False) if known and lost and time.monotonic() - lost[0] > 0.6 else None

    seconds = {"_LAST_WORDS_OF_NODES_SECONDS": 0.3, "_LOST_NODE_SECONDS": 60.0 if known else 0.3}
    with patch.multiple(launch, **seconds):
        part = Part(0, 1, meeting, elsewhere)
        told = failure(lose_another_node, count=1, part=part, lose=lambda: lost.append(time.monotonic()))
    assert (told.error.code, "Node 1" in told.error.message, told.retryable) == ("rank_died", known, True)
    assert known or "Connection closed" in (told.error.details or "")


@pytest.mark.parametrize("count", [1, 2])
def test_a_node_is_done_with_a_run_once_all_of_its_processes_failed(count: int) -> None:
    with pytest.raises(RankFailed, match="nowhere"):
        run(talk, "hello", count=count, part=Part(1, 3, ("nowhere", "meeting"), lambda: None))
    assert "ranks" not in {thread.name for thread in threading.enumerate()}
