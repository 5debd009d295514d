"""The processes of one run: the worker that holds its lease starts them, hears what they tell, answers the first one, and ends with them.

They are torch's elastic agent's, without restarts: where one dies the others end, too, and the run goes on in another attempt.
"""

import ctypes
import logging
import math
import multiprocessing
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import FileStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from backend.contract.protocol import Fail
from backend.contract.records import Progress, RunError
from worker.errors import Interrupted
from worker.failure import failure
from worker.logs import write_logs
from worker.ranks.ranks import Ranks
from worker.settings import host_and_port

Answer = TypeVar("Answer")
Work = Callable[..., Any]
"""work(ranks, device, line, *given), in each process: what it returns in the first one is the result."""

Failure = tuple[int, Fail, bool]
"""Of a process: its rank, what the backend should hear, and whether it only lost another one."""

_LOOK_SECONDS = _SHOW_SECONDS = 0.1
_LEAVE_SECONDS = 10.0  # for the others, once the first has ended
# For the first one, to send what it has still to report once another one failed: from one thing that it sends to the next.
_FAREWELL_SECONDS = 30.0
_LAST_WORDS_SECONDS = 1.0  # for the others, once one has died: torch's agent asks them to end, and they do not listen
_LAST_WORDS_OF_NODES_SECONDS = 5.0
_LOST_NODE_SECONDS = 20.0  # till node 0 knows which other one is gone
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# From a terminal, or from Slurm to all of a job: the worker is asked to end, and ends its processes.
_ASKS = signal.SIGINT, signal.SIGTERM


@dataclass(frozen=True)
class Part:
    """One node's part of a run on several: its processes are those from `first` on, of `total`.

    All meet at a store, `meeting`: its address and a prefix of its keys. `elsewhere` tells of a failure on another node.
    """

    first: int
    total: int
    meeting: tuple[str, str]
    elsewhere: Callable[[], Failure | None]


class RankFailed(Exception):
    """One of the processes failed, and the others were ended: what the backend should hear."""

    def __init__(self, fail: Fail, *, lost: bool = False) -> None:
        """`lost`: those of this node only lost another one."""
        super().__init__(fail.error.message)
        self.fail, self.lost = fail, lost
        if fail.error.details:
            self.add_note(fail.error.details)


class Dismissed(Exception):
    """The worker has no more use for this process."""


class Ends(Protocol):
    """What a line is made of, such as a pipe."""

    def send(self, message: tuple[str, object, object], /) -> None:
        """Give it to the worker."""

    def recv(self) -> tuple[bool, Any]:
        """Whether the worker answers what was asked last, and what. Raises EOFError if the worker is gone."""


class Line:
    """From one process to the worker that started it. Threads may share it."""

    def __init__(self, connection: Ends, every: float = _SHOW_SECONDS) -> None:
        """`every`: seconds between two times at which progress is shown."""
        self._connection, self._every = connection, every
        self._lock = threading.Lock()
        self._phase: str | None = None
        self._shown = 0.0
        self._known: dict[str, tuple[float, Any]] = {}

    def ask(self, name: str, *given: object) -> Any:
        """What the worker answers. Raises Dismissed where it has no answer any more."""
        with self._lock:
            self._connection.send(("ask", name, given))
            try:
                answered, answer = self._connection.recv()
            except EOFError:
                answered, answer = False, None
        if not answered:
            raise Dismissed
        return answer

    def lately(self, name: str) -> Any:
        """What the worker answered a moment ago, or answers now: to be called at every token."""
        asked, answer = self._known.get(name, (-math.inf, None))
        if time.monotonic() - asked >= self._every:
            answer = self.ask(name)
            self._known[name] = time.monotonic(), answer
        return answer

    def show(self, progress: Progress) -> None:
        """Show it to the worker: each new phase at once, and how far it is now and then."""
        now = time.monotonic()
        if progress.phase != self._phase or now - self._shown >= self._every:
            self._phase, self._shown = progress.phase, now
            self.ask("show", progress)

    def tell(self, name: str, what: object) -> None:
        """Say something that needs no answer."""
        with self._lock:
            self._connection.send((name, what, ()))


@dataclass
class Heard:
    """What is known of the processes and of their end, by rank."""

    pids: dict[int, int] = field(default_factory=dict)
    seen: dict[int | None, BaseProcess] = field(default_factory=dict)  # by process id
    result: Any = None
    ended: set[int] = field(default_factory=set)
    codes: dict[int, int] = field(default_factory=dict)  # exit codes of those that ended before they were asked to
    failed: list[Failure] = field(default_factory=list)
    refused: BaseException | None = None  # what an answer raised here

    def take(
        self,
        rank: int,
        message: tuple[str, Any, Sequence[Any]],
        answers: Mapping[str, Callable[..., Any]],
        reply: Callable[[tuple[bool, Any]], None],
    ) -> None:
        """Take in what a process said, and reply if it asked."""
        name, what, given = message
        if name == "ask":
            try:
                answer = answers[what](*given)
            except BaseException as error:  # noqa: BLE001 — raised again where the run is led
                self.refused = error
                return
            reply((True, answer))
        elif name == "ended":
            self.ended.add(rank)
            if rank == 0:
                self.result = what
        elif name == "failed":
            self.failed.append((rank, *what))
        elif name != "here":
            answers[name](rank, what)

    def look(self) -> None:
        """Note who has been started: what asks for them forgets those that ended."""
        self.seen |= {child.pid: child for child in multiprocessing.active_children()}

    def own_failure(self) -> Fail | None:
        """What one of them said of its end, unless it only lost another."""
        return next((fail for _, fail, lost in sorted(self.failed, key=lambda one: one[0]) if not lost), None)

    @property
    def only_lost(self) -> bool:
        """Whether those that failed only lost another one, and none was killed."""
        return bool(self.failed) and self.own_failure() is None and all(code >= 0 for code in self.codes.values())


def run_ranks(
    work: Work,
    given: Sequence[object],
    *,
    attempt: int,
    devices: Sequence[torch.device],
    shards: int,
    patience: timedelta,
    answers: Mapping[str, Callable[..., Any]],
    part: Part | None = None,
) -> Any:
    """What `work` returns in the first of as many processes as there are devices, which wait for each other at most for `patience`.

    `answers` are what the first one may ask, by name; one that raises ends them all, and is raised here. What any of them tells under
    the name of one goes there with the rank. If the run has more processes on other nodes, these are `part` of it, and only node 0
    returns something. Raises RankFailed.
    """
    count, heard = len(devices), Heard()
    first, total = (part.first, part.total) if part else (0, count)
    lines = [multiprocessing.Pipe() for _ in range(count)]
    threads = max(1, torch.get_num_threads() // count)
    ends = [theirs for _, theirs in lines]
    launched: list[BaseException] = []

    def launch() -> None:
        resource_tracker.ensure_running()  # which unblocks them where it starts its own process
        signal.pthread_sigmask(signal.SIG_BLOCK, _ASKS)  # in this thread and the processes, till they can ignore them
        with TemporaryDirectory(prefix="groupscope-ranks-") as folder:
            meeting = part.meeting if part else Path(folder, "meeting")
            config = LaunchConfig(
                min_nodes=1,
                max_nodes=1,
                nproc_per_node=count,
                run_id=secrets.token_hex(8),
                rdzv_backend="c10d",
                # a port would be open to everybody, and what is said there is unpickled
                rdzv_configs={"store_type": "file"},
                rdzv_endpoint=str(Path(folder, "launcher")),
                max_restarts=0,
                logs_specs=DefaultLogsSpecs(log_dir=folder),
            )
            os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # it would open one more, and nobody would use it
            try:
                elastic_launch(config, _rank)(
                    work, tuple(given), attempt, tuple(devices), first, total, shards, threads, patience, meeting, ends
                )
            except BaseException as error:  # noqa: BLE001 — the boundary of a thread: said below
                launched.append(error)

    others = set(multiprocessing.active_children())
    thread = threading.Thread(target=launch, name="ranks", daemon=True)
    thread.start()
    try:
        _serve(thread, lines, answers, heard, part)
    finally:
        for child in set(multiprocessing.active_children()) - others:
            child.kill()
        thread.join(_LEAVE_SECONDS)  # the agent does not notice each end, and the worker has more to do
        for ours, theirs in lines:
            ours.close()
            theirs.close()
    if heard.refused is not None:
        raise heard.refused
    if first in heard.ended:
        return heard.result
    raise RankFailed(_cause(attempt, heard, launched, total), lost=heard.only_lost)


def _serve(
    thread: threading.Thread,
    lines: Sequence[tuple[Connection, Connection]],
    answers: Mapping[str, Callable[..., Any]],
    heard: Heard,
    part: Part | None,
) -> None:
    """Until the processes have ended, or should be."""
    first = part.first if part else 0
    farewell = _LAST_WORDS_SECONDS if first else _FAREWELL_SECONDS

    def last_words() -> float:
        if part is None or first:
            return _LAST_WORDS_SECONDS
        return _LOST_NODE_SECONDS if heard.only_lost else _LAST_WORDS_OF_NODES_SECONDS

    until, open_lines = float("inf"), {rank: ours for rank, (ours, _) in enumerate(lines, start=first)}
    while time.monotonic() < until:
        if part is not None and first not in heard.ended and (failure := part.elsewhere()) is not None:
            heard.failed = [one for one in heard.failed if one[0] != failure[0]] + [failure]
            known = first not in open_lines and not failure[2]
            until = min(until, time.monotonic() + (0.0 if known else farewell))
        over, all_here = not thread.is_alive(), len(heard.pids) == len(lines)
        if over or all_here:  # not before: who is still to be started is handed the ends of all
            for _, theirs in lines:
                theirs.close()
        ready = wait(open_lines.values(), _LOOK_SECONDS)
        for rank, line in list(open_lines.items()):
            if line not in ready:
                continue
            try:
                message = line.recv()
            except (EOFError, OSError):  # it died, perhaps in the midst of a word
                del open_lines[rank]
                if rank not in heard.ended:
                    # where one never came, torch's agent killed the others
                    if (all_here or not over) and (child := heard.seen.get(heard.pids.get(rank))) is not None:
                        heard.codes[rank] = _exit_code(child)
                    if rank == first or rank not in {failed for failed, *_ in heard.failed}:
                        until = min(until, time.monotonic() + last_words())
                continue
            if message[0] == "here":
                heard.pids[rank] = message[1]
            with suppress(OSError):  # it died while it waited for a reply
                heard.take(rank, message, answers, line.send)
            if heard.refused is not None:
                return
            if first in heard.ended:
                until = min(until, time.monotonic() + _LEAVE_SECONDS)
            elif heard.failed and not heard.ended and (message[0] == "failed" or (rank, message[0]) == (0, "ask")):
                until = time.monotonic() + farewell
        if sum(pid in heard.seen for pid in heard.pids.values()) < len(lines):
            heard.look()
        if not ready and over:
            if part is None or first in heard.ended:
                return
            until = min(until, time.monotonic() + last_words())


def _exit_code(child: BaseProcess) -> int:
    """How it ended; 0 if nobody knows. Torch's agent waits for it, too, and who comes second learns it only once the first has noted it."""
    until = time.monotonic() + _LAST_WORDS_SECONDS
    child.join(_LAST_WORDS_SECONDS)
    while child.exitcode is None and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS / 10)
    return child.exitcode or 0


def _cause(attempt: int, heard: Heard, launched: list[BaseException], count: int) -> Fail:
    """Why the processes ended: what one of them said, unless it only lost another."""
    if (own := heard.own_failure()) is not None:
        return own
    for rank, code in sorted(heard.codes.items()):  # what torch's agent says is of the first that it looked at
        if code < 0:
            return _died(attempt, rank, count, signal.Signals(-code).name)
    if heard.failed:
        return heard.failed[0][1]
    return _died(attempt, None, count, "no reason is known", details="".join(map(str, launched)) or None)


def _died(attempt: int, rank: int | None, count: int, how: str, details: str | None = None) -> Fail:
    which = "One" if rank is None else f"Process {rank}"
    message = (
        f"{which} of the {count} processes of this run died ({how}). If memory ran out, lower optimizer.micro_batch_tokens or use "
        "more processes. The run goes on from its last checkpoint."
    )
    return Fail(attempt=attempt, error=RunError(code="rank_died", message=message, details=details), retryable=True)


def _rank(
    work: Work,
    given: tuple[object, ...],
    attempt: int,
    devices: tuple[torch.device, ...],
    first: int,
    total: int,
    shards: int,
    threads: int,
    patience: timedelta,
    meeting: tuple[str, str] | Path,
    lines: list[Connection],
) -> None:
    """One of the processes, from its start to its end."""
    for number in _ASKS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKS)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    here = int(os.environ["LOCAL_RANK"])
    for other in (*lines[:here], *lines[here + 1 :]):
        other.close()
    line, device, rank = Line(lines[here]), devices[here], first + here
    line.tell("here", os.getpid())
    write_logs()
    logging.getLogger("worker.reporter").disabled = rank > 0  # all would write the run's log
    torch.set_num_threads(threads)
    try:
        ended = tell_end(
            line,
            attempt,
            lambda: work(
                Ranks.join(rank, total, shards, device, patience, _store(meeting, total)), device, line, *given
            ),
        )
    except Dismissed:
        os._exit(0)
    if not ended:
        # Without a farewell: the others wait in the midst of a step. As if it had ended well, since else torch's agent would kill the
        # first one, which still has reports to send: it ends by itself once it finds that this one has gone. But one of each node says
        # that it failed: the agent would wait without end for what processes return that ended well.
        os._exit(1 if here == 0 else 0)
    dist.destroy_process_group()


def _store(meeting: tuple[str, str] | Path, total: int) -> Store:
    """Where the processes meet: in a file if all of them are here."""
    if isinstance(meeting, Path):
        for library in ("GLOO", "NCCL"):
            os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")  # no other machine has to reach them
        return FileStore(str(meeting), total)
    address, prefix = meeting
    return PrefixStore(prefix, TCPStore(*host_and_port(address), is_master=False))


def tell_end(line: Line, attempt: int, do: Callable[[], Any]) -> bool:
    """Do it and tell the worker how it ended; whether it ended well. Raises Dismissed."""
    try:
        line.tell("ended", do())
    except Interrupted as interrupted:
        line.tell("ended", interrupted.ending)
    except Dismissed:
        raise
    except Exception as error:  # noqa: BLE001 — the boundary of the process
        fail = failure(attempt, error)
        if lost := isinstance(error, dist.DistError) or "gloo" in str(error):
            text = "A process of this run lost another one, which ended without a word. The run goes on from its last checkpoint."
            said = RunError(code="rank_died", message=text, details=fail.error.details)
            fail = fail.model_copy(update={"error": said})
        line.tell("failed", (fail, lost))
        return False
    return True
