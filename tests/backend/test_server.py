"""The server's door: late clients are cut off, those who are served are not, and a line that repeats itself is counted."""

import gc
import logging
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import uvicorn
from processes import wait_until
from serving import Backends
from starlette.types import Receive, Scope, Send

from backend import document
from backend.server import connections, log
from backend.server.connections import listen, serve

Connect = Callable[[], socket.socket]

HEADER = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
LARGE = 64 * 2**20  # more than the kernel keeps for a client that does not read


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the whole request, then answers: with much, if it was asked for /large."""
    if scope["type"] == "lifespan":
        return
    while (event := await receive()).get("more_body"):
        pass
    if event["type"] == "http.disconnect":
        return
    body = b"x" * (LARGE if scope["path"] == "/large" else 1)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def connect(servers: list[connections._Server], monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Opens connections to a server that is patient for a second."""
    monkeypatch.setattr(connections, "SECONDS", dict.fromkeys(("header", "body", "reader"), 1.0))
    [listening] = listen("127.0.0.1", 0)
    address = listening.getsockname()
    thread = threading.Thread(target=serve, args=(app, [listening]))
    thread.start()
    wait_until(lambda: servers and servers[-1].started, "the server is up")
    opened: list[socket.socket] = []

    def one() -> socket.socket:
        opened.append(socket.create_connection(address, timeout=30))
        return opened[-1]

    yield one
    for each in opened:
        each.close()
    servers[-1].should_exit = True
    thread.join()


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[connections._Server]:
    """Those that were made."""
    made: list[connections._Server] = []
    original = connections._Server.__init__

    def noted(self: connections._Server, config: uvicorn.Config) -> None:
        original(self, config)
        made.append(self)

    monkeypatch.setattr(connections._Server, "__init__", noted)
    return made


def taken(one: socket.socket) -> bytes:
    """All that comes until the server closes it."""
    found = b""
    try:
        while piece := one.recv(2**20):
            found += piece
    except ConnectionResetError:
        pass
    return found


def drip(one: socket.socket) -> None:
    """Send a piece of a header again and again, for at most half a minute."""
    for _ in range(300):
        one.sendall(b"G")
        time.sleep(0.1)


@pytest.mark.slow
def test_a_header_has_one_deadline_however_its_pieces_arrive_also_of_a_second_request(connect: Connect) -> None:
    silent, second = connect(), connect()
    second.sendall(HEADER + b"body")
    assert second.recv(2**16).startswith(b"HTTP/1.1 200")
    second.sendall(b"GET / HT")
    with pytest.raises(ConnectionError):
        drip(connect())
    assert taken(silent) == b""
    assert b"HTTP" not in taken(second)


@pytest.mark.slow
def test_a_body_may_take_long_as_long_as_it_arrives(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.SECONDS, "body", 3.0)  # twice a busy machine's worst pause between two pieces
    steady, stalled = connect(), connect()
    stalled.sendall(HEADER + b"b")
    steady.sendall(HEADER)
    for piece in (b"b", b"o", b"d", b"y"):
        time.sleep(0.9)
        steady.sendall(piece)
    assert steady.recv(2**16).startswith(b"HTTP/1.1 200")
    assert taken(stalled) == b""


@pytest.mark.slow
def test_an_answer_that_nobody_takes_is_broken_off(connect: Connect, servers: list[connections._Server]) -> None:
    one = connect()
    one.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    [server] = servers
    wait_until(lambda: server.server_state.waiting, "the server notices that nobody reads")
    wait_until(lambda: not server.server_state.connections, "it breaks off")
    assert 0 < len(taken(one)) < LARGE


def test_those_who_wait_for_their_client_longest_make_room(
    connect: Connect, servers: list[connections._Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SECONDS", dict.fromkeys(("header", "body", "reader"), 30.0))
    monkeypatch.setattr(connections, "places", lambda: 3)
    [server] = servers
    held = []
    for number in range(1, 4):
        held.append(connect())
        wait_until(lambda number=number: len(server.server_state.waiting) == number, "it is counted")
    first = next(iter(server.server_state.waiting))
    held[0].sendall(b"GET / HT")
    wait_until(lambda: next(iter(server.server_state.waiting)) is not first, "it was heard of last")
    newcomer = connect()
    newcomer.sendall(HEADER + b"body")
    assert newcomer.recv(2**16).startswith(b"HTTP/1.1 200")
    assert taken(held[1]) == b""
    held[0].sendall(b"TP/1.1\r\nHost: x\r\n\r\n")
    assert held[0].recv(2**16).startswith(b"HTTP/1.1 200")


def test_a_line_that_repeats_itself_is_written_three_times_a_minute_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now[0])
    logger = logging.getLogger("repeats")
    repeats = log.Repeats()
    logger.addFilter(repeats)
    for second in range(100):
        now[0] = second * 0.5
        logger.warning("no %s", "room")
        logger.warning("line %d", second)
    now[0] = 61.0
    logger.warning("no %s", "room")
    said = [message for message in caplog.messages if message.startswith("no room")]
    assert said == ["no room"] * 3 + ["no room (97 more like this were left out)"]
    assert sum(message.startswith("line") for message in caplog.messages) == 100
    for number in range(10_000):
        logger.warning("another %d", number)
    assert len(repeats._seen) <= 256


def test_threads_that_write_at_once_never_fail_in_the_log() -> None:
    repeats = log.Repeats()

    def write(_: int) -> None:
        for number in range(3000):
            repeats.filter(logging.LogRecord("threads", logging.INFO, __file__, 1, f"line {number % 300}", (), None))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10):
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(write, range(4)))  # raises what one of them raised
    finally:
        sys.setswitchinterval(before)


def test_a_closed_backend_leaves_no_application_behind(tmp_path: Path) -> None:
    """A hundred thousand objects each: looking through those of a few hundred took longer than most tests."""
    with Backends(tmp_path / "home") as backends:
        serving = backends.start()
        assert serving.http.get(document.PATH).is_success
        application = weakref.ref(serving.services)
        del serving

    def is_gone() -> bool:
        gc.collect()
        return application() is None

    wait_until(is_gone, "nothing holds the application's services", patience=30)
