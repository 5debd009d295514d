"""One run on several machines: node 0 is the worker that claims it, and the others train their part of what it announces.

They meet at a store of torch's (c10d) on node 0, and what they say there is JSON. It asks for no password, so it belongs into a private network.
"""

import logging
import math
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from pydantic import BaseModel, ConfigDict
from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]

from backend.contract.home import CannotStart
from backend.contract.protocol import Claim, Fail
from backend.contract.records import Rank, RunError
from worker.ranks.launch import Failure, Part
from worker.settings import host_and_port

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.2
_PULSE_SECONDS = 1.0
_LOST_SECONDS = 15.0  # without a pulse
_ANSWER = timedelta(seconds=30)
_GOODBYE_SECONDS = 15.0  # for all to hear it; a process of theirs may have to be ended first
# Keys of the store. Those of one run begin with its number.
_RUNS, _LEAVING, _GOODBYE, _PROCESSES, _REFUSED = "runs", "leaving", "goodbye", "processes", "refused"


class Announced(BaseModel):
    """A run, as node 0 announces it: `parts` has the first process of each node's part, and how many there are."""

    model_config = ConfigDict(frozen=True)

    claim: Claim
    store: str
    resume: str | None  # a checkpoint's path in the store
    shards: int
    patience: float  # seconds
    parts: list[tuple[int, int]]

    @property
    def total(self) -> int:
        """How many processes train it."""
        return sum(count for _, count in self.parts)


class _Ended(BaseModel):
    """How a node's part of a run ended, if it failed; `lost`: it only lost another one."""

    fail: Fail
    lost: bool


def parts_of(total: int, each: int) -> list[tuple[int, int]]:
    """Which processes each node starts, as (first, count), if a node has room for `each`."""
    return [(first, min(each, total - first)) for first in range(0, total, each)]


def _connect(address: str, *, lead: bool) -> TCPStore:
    return TCPStore(*host_and_port(address), is_master=lead, wait_for_workers=False, timeout=_ANSWER)


class Followers:
    """The other nodes, as node 0 sees them. Raises CannotStart if the store cannot be opened."""

    def __init__(self, nodes: int, address: str, processes: int) -> None:
        """`processes`: on each of them."""
        try:
            socket.getaddrinfo(*host_and_port(address))  # torch's words for a name that nobody knows say nothing
            self._store = _connect(address, lead=True)
            self._store.set(_PROCESSES, str(processes))
        except (OSError, DistError, RuntimeError, OverflowError) as error:
            said = str(error).partition("\n")[0]
            raise CannotStart(
                f"the other nodes cannot meet at GROUPSCOPE_RENDEZVOUS (--rendezvous), {address}: {said}"
            ) from None
        self._address, self._nodes = address, nodes
        self._heard = dict[int, tuple[str, int, float]]()  # by node: who it is, its pulse, and when that changed
        self._since = 0.0  # a node that was there before the end of the last run may have died with it
        self._over = threading.Event()
        self.leaving = False  # one of them was asked to end
        self._thread = threading.Thread(target=self._look, name="nodes", daemon=True)
        self._thread.start()

    @property
    def missing(self) -> list[int]:
        """Nodes that have not been heard of for a while, or since the last run."""
        oldest = max(self._since, time.monotonic() - _LOST_SECONDS)
        return [node for node in range(1, self._nodes) if self._heard.get(node, ("", 0, 0.0))[2] <= oldest]

    def _look(self) -> None:
        said: list[int] | None = None
        while not self._over.wait(_LOOK_SECONDS):
            for node in range(1, self._nodes):
                pulse = self._store.add(f"pulse/{node}", 0)
                if pulse and pulse != self._heard.get(node, ("", 0, 0.0))[1]:
                    self._heard[node] = self._store.get(f"node/{node}").decode(), pulse, time.monotonic()
            if (missing := self.missing) != said:
                log.info("waiting for the nodes %s", missing) if missing else log.info("all nodes are there")
                said = missing
            if self._store.check([_REFUSED]):
                log.error("%s", self._store.get(_REFUSED).decode())
                self._store.delete_key(_REFUSED)
            if not self.leaving and self._store.check([_LEAVING]):
                log.info("a node was asked to end: this one gives its run back, and all of them end")
                self.leaving = True

    @contextmanager
    def run(self, announced: Announced, hear: Callable[[int, Rank], None]) -> Iterator[Part]:
        """Have the others begin their parts, and end them at the end; `hear` what their processes say they do. Node 0's own part."""
        others = range(1, len(announced.parts))
        known = {node: self._heard[node][0] for node in others}
        number = self._store.add(_RUNS, 1)
        self._store.set(f"{number}/announced", announced.model_dump_json())

        said = dict[int, bytes]()
        heard_at = -math.inf

        def listen() -> None:
            nonlocal heard_at
            if time.monotonic() - heard_at < _PULSE_SECONDS:
                return
            heard_at = time.monotonic()
            for rank in range(announced.parts[1][0], announced.total):
                key = f"{number}/status/{rank}"
                if self._store.check([key]) and (words := self._store.get(key)) != said.get(rank):
                    said[rank] = words
                    hear(rank, Rank.model_validate_json(words))

        def elsewhere() -> Failure | None:
            listen()
            lost = None
            for node in others:
                first = announced.parts[node][0]
                if self._store.check([f"{number}/ended/{node}"]):
                    ended = _Ended.model_validate_json(self._store.get(f"{number}/ended/{node}"))
                    if not ended.lost:
                        return first, ended.fail, False
                    lost = first, ended.fail, True
                elif node in self.missing or self._heard[node][0] != known[node]:
                    text = f"Node {node} of this run's {len(announced.parts)} was lost. The run goes on from its last checkpoint."
                    error = RunError(code="rank_died", message=text)
                    return first, Fail(attempt=announced.claim.attempt, error=error, retryable=True), False
            return lost

        try:
            yield Part(0, announced.total, (self._address, f"{number}/meeting"), elsewhere)
        finally:
            self._store.set(f"{number}/over", "")
            self._since = time.monotonic()

    def close(self, code: int) -> None:
        """Say goodbye with the exit code of this process, and wait a moment until all have heard it."""
        log.info("ending with all nodes, with exit code %d", code)
        self._over.set()
        self._thread.join()
        self._store.set(_GOODBYE, str(code))
        deadline = time.monotonic() + _GOODBYE_SECONDS
        there = [node for node, (_, _, at) in self._heard.items() if time.monotonic() - at < _LOST_SECONDS]
        while time.monotonic() < deadline and not self._store.check([f"gone/{node}" for node in there]):
            time.sleep(_LOOK_SECONDS)


class Leader:
    """Node 0, as another node sees it. Raises ConnectionError if it is not there; `gone` once it no longer answers, or once another
    process took this one's number (`displaced`).

    Raises CannotStart if it has another number of processes.
    """

    def __init__(self, node: int, address: str, processes: int) -> None:
        try:
            socket.create_connection(host_and_port(address), _PULSE_SECONDS).close()  # torch's would log each try
            self._store = _connect(address, lead=False)
            self._taken = self._store.add(_RUNS, 0)  # a run that is under way goes on without this process
            if (theirs := int(self._store.get(_PROCESSES))) != processes:
                text = f"node {node} has --processes {processes} and node 0 has {theirs}: start all nodes with the same number"
                self._store.set(_REFUSED, text)
                raise CannotStart(text)
            self._name = secrets.token_hex(8)
            self._store.set(f"node/{node}", self._name)
        except (OSError, DistError, RuntimeError) as error:
            raise ConnectionError(f"node 0 does not answer at {address}: {error}") from error
        self._node, self._address = node, address
        self._left = threading.Event()
        self.gone = self.displaced = False
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        try:
            while True:
                self._store.add(f"pulse/{self._node}", 1)
                if self._store.get(f"node/{self._node}").decode() != self._name:
                    log.error("another process is node %d, too: this one ends", self._node)
                    self.displaced = True
                    break
                if self._left.wait(_PULSE_SECONDS):
                    return
        except (DistError, RuntimeError):
            pass
        self.gone = True

    def next(self) -> tuple[int, Announced] | None:
        """A run that this node has a part of, with its number. Raises DistError."""
        if self._store.add(_RUNS, 0) == self._taken or not self._store.check([f"{self._taken + 1}/announced"]):
            return None
        self._taken += 1
        announced = Announced.model_validate_json(self._store.get(f"{self._taken}/announced"))
        return (self._taken, announced) if self._node < len(announced.parts) else None

    def part(self, number: int, announced: Announced, leave: Callable[[], bool]) -> Part:
        """This node's part of a run, which ends with node 0's, and once `leave` says so."""
        first, _ = announced.parts[self._node]

        def elsewhere() -> Failure | None:
            try:
                over = leave() or self.gone or self._store.check([f"{number}/over"])
            except (DistError, RuntimeError):
                over = True
            if not over:
                return None
            error = RunError(code="rank_died", message="Node 0 of this run ended it.")
            return 0, Fail(attempt=announced.claim.attempt, error=error, retryable=True), True

        return Part(first, announced.total, (self._address, f"{number}/meeting"), elsewhere)

    def pass_on(self, number: int, rank: int, said: Rank) -> None:
        """What a process of this node says it does."""
        with suppress(DistError, RuntimeError):  # node 0 has gone: that shows elsewhere
            self._store.set(f"{number}/status/{rank}", said.model_dump_json())

    def report(self, number: int, fail: Fail, *, lost: bool) -> None:
        """Say how this node's part failed. Raises DistError."""
        self._store.set(f"{number}/ended/{self._node}", _Ended(fail=fail, lost=lost).model_dump_json())

    def leave(self) -> None:
        """Say that this node was asked to end: node 0 gives its run back and says goodbye. Raises DistError."""
        self._store.set(_LEAVING, "")

    def goodbye(self) -> int | None:
        """Node 0's exit code, once it has said goodbye. Raises DistError."""
        if not self._store.check([_GOODBYE]):
            return None
        code = int(self._store.get(_GOODBYE))
        log.info("ending with node 0, with exit code %d", code)
        self._store.set(f"gone/{self._node}", "")
        return code

    def close(self) -> None:
        """Send no pulse any more."""
        self._left.set()
        self._thread.join(2 * _PULSE_SECONDS)
