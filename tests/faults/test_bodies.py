"""Bodies that are too large, lie about their size, or come very slowly: memory stays, and others are served meanwhile."""

import gzip
import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import bombs
import httpx
import pytest
import recorded
from processes import TOKEN, Site, wait_until

from backend.contract import protocol as p
from backend.contract.client import ApiError

MIB = 2**20
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}


class Memory:
    """The most memory that a process held since the last look; the kernel counts it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._folder = Path(f"/proc/{process.pid}")

    def reset(self) -> int:
        (self._folder / "clear_refs").write_text("5")
        return self.peak()

    def peak(self) -> int:
        lines = (self._folder / "status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for all of these: a body that is refused leaves nothing behind."""
    with Site(tmp_path_factory.mktemp("bodies") / "home", lease_seconds=3600) as one:
        yield one


@pytest.fixture(scope="module")
def memory(site: Site) -> Memory:
    process = site.backend()
    recorded.claim(site.client, recorded.queue(site.client))
    return Memory(process)


class Others:
    """Somebody else's requests, all the while: none may fail, and none may wait long."""

    def __init__(self, site: Site) -> None:
        self._over = threading.Event()
        self._url = f"{site.url}/api/v1/runs/1"
        self.served = 0
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> "Others":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _ask(self) -> None:
        with httpx.Client(headers=HEADERS, timeout=30) as client:
            while not self._over.wait(0.02):
                client.get(self._url).raise_for_status()
                self.served += 1


def post(site: Site, path: str, content: bytes | Iterator[bytes], **headers: str) -> int:
    try:
        answer = httpx.post(f"{site.url}{path}", content=content, headers=HEADERS | headers, timeout=60)
    except (httpx.WriteError, httpx.RemoteProtocolError):
        return 413  # it answered and closed before all was sent
    assert set(answer.json()["error"]) == {"code", "message", "details"}
    return answer.status_code


def endless(size: int) -> Iterator[bytes]:
    for _ in range(size // 65_536):
        yield b" " * 65_536


@cache
def a_million() -> bytes:
    """Names in one object."""
    return json.dumps({str(n): n for n in range(10**6)}).encode()


REPORT = "/api/v1/worker/runs/1/report"
REPORTED = b'{"attempt": 1, "seq": 0, "step": 0, "metrics": %s}'
BODIES: dict[str, tuple[str, Callable[[], bytes | Iterator[bytes]], tuple[int, ...], dict[str, str]]] = {
    "200,000 levels": ("/api/v1/runs", lambda: b"[" * 200_000, (400, 422), {}),
    "200,000 objects": ("/api/v1/runs", lambda: b'{"a":' * 200_000, (400, 422), {}),
    "200,000 levels in a report": (REPORT, lambda: b"[" * 200_000, (400, 422), {}),
    "a number of 5,000 digits": ("/api/v1/runs", lambda: b"9" * 5_000, (400, 422), {}),
    "a million keys": (REPORT, a_million, (422,), {}),
    "a million metrics": (REPORT, lambda: REPORTED % a_million(), (422,), {}),
    "a gzip bomb": ("/api/v1/runs", lambda: gzip.compress(b" " * 100 * MIB), (400, 422), {"Content-Encoding": "gzip"}),
    "100 MiB, declared": ("/api/v1/runs", lambda: b" " * 100 * MIB, (413,), {}),
    "100 MiB, in chunks": ("/api/v1/runs", lambda: endless(100 * MIB), (413,), {}),
    "100 MiB in chunks, to a report": (REPORT, lambda: endless(100 * MIB), (413,), {}),
    "64 MiB of line ends": (f"{REPORT}s", lambda: b"\n" * 64 * MIB, (400,), {}),
    "20 million lines": (f"{REPORT}s", lambda: b"ab\n" * 20_000_000, (400,), {}),
    "a million metrics in each of three": (f"{REPORT}s", lambda: b"\n".join([REPORTED % a_million()] * 3), (422,), {}),
    "a million columns": ("/api/v1/uploads?name=x", a_million, (422,), {}),
}
ROOM = 400 * MIB  # a report may be 64 MiB, and its JSON several times that in memory


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_an_oversized_body_is_refused_in_bounded_memory_while_others_are_served(
    site: Site, memory: Memory, name: str
) -> None:
    path, body, expected, headers = BODIES[name]
    content = body()
    before = memory.reset()
    with Others(site) as others:
        status = post(site, path, content, **headers)
        wait_until(lambda: others.served, "somebody else is served")
    assert status in expected
    assert memory.peak() - before < ROOM
    assert site.client.healthy()


@pytest.mark.slow
def test_a_trace_of_40_million_rows_is_refused_without_being_read(site: Site, memory: Memory) -> None:
    bomb = bombs.many_rows(40_000_000)
    assert len(bomb.data) < 1_000_000
    sent = p.Report(attempt=1, seq=0, step=0, groups=[recorded.group_of(0, [1.0, 0.0])], trace=bomb)
    before = memory.reset()
    with Others(site) as others:
        with pytest.raises(ApiError) as caught:
            site.client.report(1, sent)
        wait_until(lambda: others.served, "somebody else is served")
    assert (caught.value.status, caught.value.code) == (422, "invalid")
    assert memory.peak() - before < 50 * MIB


@pytest.mark.slow
def test_a_length_that_lies_holds_nobody_up(site: Site, memory: Memory) -> None:
    port = site.port
    for declared in (b"-1", b"1e9", b"10, 20", b"9" * 30, "٣".encode()):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            head = f"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            client.sendall(head.encode() + b"Content-Length: " + declared + b"\r\n\r\n{}")
            assert client.recv(200).startswith((b"HTTP/1.1 400", b"HTTP/1.1 413")), declared
    assert site.client.healthy()


@pytest.mark.slow
def test_fifty_bodies_that_come_a_byte_at_a_time_are_waited_for_and_hinder_nobody(site: Site, memory: Memory) -> None:
    before = memory.reset()
    head = f"POST {REPORT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 60000000\r\n\r\n"
    slow = [socket.create_connection(("127.0.0.1", site.port), timeout=30) for _ in range(50)]
    try:
        for client in slow:
            client.sendall(head.encode())
        with Others(site) as others:
            for _ in range(10):
                for client in slow:
                    client.sendall(b" ")
                done = others.served
                wait_until(lambda done=done: others.served > done, "somebody else is served")  # type: ignore[misc]
            site.client.heartbeat(1, p.Heartbeat(attempt=1, worker=recorded.WORKER.name))
    finally:
        for client in slow:
            client.close()
    assert memory.peak() - before < 100 * MIB
