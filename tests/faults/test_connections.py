"""Connections in numbers: half open, or open for ever. The backend answers, workers keep their runs, the log stays small."""

import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from acting import GRPO, Actor
from processes import TOKEN, Site, wait_until

from backend.contract.client import Client

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

PATIENCE = 15.0  # seconds; a second is what is promised, on a machine that does nothing else
FILES = 1024  # what the backend may have open: the usual limit
SECONDS = [3.0, pytest.param(60.0, marks=pytest.mark.long)]
HALF = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
BODY = (
    b"POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"
    b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{" % TOKEN.encode()
)


class Crowd:
    """Keeps a number of connections open: each sends its first bytes and then nothing; of those closed, 100 a second come back."""

    def __init__(self, port: int, number: int, first: bytes) -> None:
        self._port, self._number, self._first = port, number, first
        self._open: list[socket.socket] = []
        self.made = 0

    def fill(self, at_once: int) -> None:
        """Open what is missing, or a part of it."""
        kept = []
        for one in self._open:
            try:
                if one.recv(65_536):
                    kept.append(one)
                else:
                    one.close()
            except BlockingIOError:
                kept.append(one)
            except OSError:
                one.close()
        self._open = kept
        for _ in range(min(at_once, self._number - len(self._open))):
            one = socket.create_connection(("127.0.0.1", self._port), timeout=30)
            self._open.append(one)
            self.made += 1
            try:
                one.sendall(self._first)
            except OSError:
                continue  # closed already: it comes back next time
            one.setblocking(False)

    def leave(self) -> None:
        """Close all."""
        for one in self._open:
            one.close()


@contextmanager
def crowd_of(port: int, number: int, first: bytes) -> Iterator[Crowd]:
    """A crowd that has arrived."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    crowd, over = Crowd(port, number, first), threading.Event()
    crowd.fill(number)
    wait_until(lambda: httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE).is_success, "the crowd is in")

    def come_back() -> None:
        while not over.wait(0.5):
            crowd.fill(50)

    thread = threading.Thread(target=come_back)
    thread.start()
    try:
        yield crowd
    finally:
        over.set()
        thread.join()
        crowd.leave()


def stand_it(site: Site, worker: Actor, seconds: float) -> None:
    """New connections are answered, heartbeats and reports accepted, all the time; and the log hardly grows."""
    log = site.home / "backend.app.log"
    size, longest, asked = log.stat().st_size, 0.0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        assert httpx.get(f"{site.url}/healthz", timeout=PATIENCE).status_code == 200
        longest, asked = max(longest, time.monotonic() - began), asked + 1
        worker.beat()
        if asked % 5 == 0:
            worker.report(worker.seq)
        time.sleep(0.1)
    grown = log.stat().st_size - size
    print(f"{asked} x /healthz, the longest {longest:.3f} s; {worker.seq} reports; log +{grown:,} bytes")  # noqa: T201 — figures for docs/reliability.md
    assert grown < 1_000_000
    assert site.client.run(worker.run_id).attempt == 1


@pytest.fixture
def working(tmp_path: Path) -> Iterator[tuple[Site, Actor]]:
    """A backend that may have 1,024 files open, and a worker that holds a run."""
    with Site(tmp_path / "home", lease_seconds=30) as site:
        site.backend(files=FILES)
        site.client.create_run({**GRPO, "budget": {"steps": 10_000}})  # a report each, for a minute
        with Client(site.url, TOKEN, timeout=PATIENCE) as client:
            yield site, Actor(client).begin()


@pytest.mark.parametrize("seconds", SECONDS)
def test_1100_half_open_connections_leave_the_backend_answering(working: tuple[Site, Actor], seconds: float) -> None:
    site, worker = working
    with crowd_of(site.port, 1100, HALF) as crowd:
        stand_it(site, worker, seconds)
        assert crowd.made > 1100, "some were closed to make room"


@pytest.mark.parametrize("seconds", SECONDS)
def test_1000_event_streams_leave_the_backend_answering(working: tuple[Site, Actor], seconds: float) -> None:
    site, worker = working
    stream = b"GET /api/v1/runs/%d/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n"
    with crowd_of(site.port, 1000, stream % (worker.run_id, TOKEN.encode())):
        stand_it(site, worker, seconds)
        with httpx.stream("GET", f"{site.url}/api/v1/runs/1/events", headers=site.bearer, timeout=30) as answer:
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert "event streams are open" in answer.read().decode()

    def streams() -> bool:
        with httpx.stream("GET", f"{site.url}/api/v1/runs/1/events", headers=site.bearer, timeout=5) as answer:
            return answer.status_code == 200

    wait_until(streams, "the places of streams that were closed are free again")


def test_1000_unfinished_bodies_leave_the_backend_answering(working: tuple[Site, Actor]) -> None:
    site, worker = working
    with crowd_of(site.port, 1000, BODY):
        stand_it(site, worker, 3.0)
